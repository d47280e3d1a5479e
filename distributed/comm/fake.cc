#include "distributed/comm/fake.h"

#include <algorithm>
#include <map>

#include "distributed/comm/transfer.h"
#include "framework/base/mutex.h"

namespace weft::dist {
namespace {

class Done final : public Work {
 public:
  explicit Done(std::optional<Error> error = {}) : error_(std::move(error)) {}
  std::optional<Error> wait(Deadline) override { return error_; }
  bool done() override { return true; }

 private:
  std::optional<Error> error_;
};

class FakeCommunicator final : public Communicator {
 public:
  FakeCommunicator(int rank, int size, std::string axes, std::vector<CollectiveRecord>* log)
      : rank_(rank), size_(size), axes_(std::move(axes)), log_(log) {}
  int rank() const override { return rank_; }
  int size() const override { return size_; }

  Ref<Work> start(const CommRequest& r) override {
    MutexLock lock(mutex_);
    if (!cause_.empty()) return make_ref<Done>(Error(Code::kAborted, "collective aborted: " + cause_));
    auto wrong = [&](const std::string& why) {
      return make_ref<Done>(
          Error(Code::kInvalidArgument, str_cat(r.kind, axes_.empty() ? "" : " over ", axes_, ": ", why)));
    };
    const bool pair = r.kind == Collective::kSend || r.kind == Collective::kRecv;
    if (pair && (r.peer < 0 || r.peer >= size_ || r.peer == rank_))
      return wrong(str_cat("the peer is ", r.peer, "; need another rank from 0 to ", size_ - 1));
    if (r.kind == Collective::kBroadcast && (r.peer < 0 || r.peer >= size_))
      return wrong(str_cat("the root is ", r.peer, "; need a rank from 0 to ", size_ - 1));
    if ((r.kind == Collective::kAllReduce || r.kind == Collective::kReduceScatter) &&
        !internal::reduces(r.op, r.in.dtype))
      return wrong(str_cat("cannot take the ", r.op, " of ", r.in.dtype));
    for (auto counts : {r.send_counts, r.recv_counts})
      if (!counts.empty() && static_cast<int>(counts.size()) != size_)
        return wrong(str_cat(counts.size(), " parts; need ", size_));
    if (log_) {
      const StridedView& only = r.kind == Collective::kRecv ? r.out : r.in;
      int64_t bytes = only.numel();
      if (r.kind == Collective::kBarrier)
        bytes = 0;
      else if (!pair)
        bytes = std::max(r.in.numel(), r.out.numel());
      log_->push_back({r.kind, axes_, only.dtype, bytes * itemsize(only.dtype), r.site});
    }
    return make_ref<Done>();
  }

  /// As if all ranks had passed this rank's colour and key.
  Ref<Communicator> split(int color, int, Work::Deadline) override {
    if (color < 0) return {};
    return make_ref<FakeCommunicator>(rank_, size_, axes_, log_);
  }

  void abort(const std::string& cause) override {
    MutexLock lock(mutex_);
    if (cause_.empty()) cause_ = cause.empty() ? "no cause given" : cause;
  }

 private:
  const int rank_, size_;
  const std::string axes_;
  std::vector<CollectiveRecord>* const log_;
  Mutex mutex_;
  std::string cause_ WEFT_GUARDED_BY(mutex_);
};

class FakeRank final : public RankContext {
 public:
  FakeRank(int rank, int size, std::function<std::pair<int, int>(const std::string&)> place)
      : RankContext(rank, size, Device::cpu()), place_(std::move(place)) {
    recording = true;
  }
  ~FakeRank() override { abandon(); }
  Communicator& communicator(const std::string& axes) override {
    auto it = mine_.find(axes);
    if (it == mine_.end()) {
      const auto [coordinate, parts] = place_(axes);
      it = mine_.emplace(axes, make_fake_communicator(coordinate, parts, axes)).first;
    }
    return *it->second;
  }

 private:
  std::function<std::pair<int, int>(const std::string&)> place_;
  std::map<std::string, Ref<Communicator>> mine_;
};

}  // namespace

Ref<Communicator> make_fake_communicator(int rank, int size, std::string axes, std::vector<CollectiveRecord>* log) {
  WEFT_CHECK(size >= 1 && rank >= 0 && rank < size, "fake communicator: rank ", rank, " of ", size,
             "; need a rank from 0 to ", size - 1);
  return make_ref<FakeCommunicator>(rank, size, std::move(axes), log);
}

std::unique_ptr<RankContext> make_fake_rank(int rank, int size,
                                            std::function<std::pair<int, int>(const std::string&)> place) {
  return std::make_unique<FakeRank>(rank, size, std::move(place));
}

}  // namespace weft::dist
