#include "distributed/comm/self.h"

#include <cstring>

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

std::optional<Error> check(const CommRequest& r) {
  auto wrong = [](const std::string& why) { return Error(Code::kInvalidArgument, "collective in a world of one: " + why); };
  if (r.kind == Collective::kBarrier) return {};
  if (r.kind == Collective::kSend || r.kind == Collective::kRecv) return wrong("there is no peer to send to or receive from");
  if (r.kind == Collective::kBroadcast && r.peer != 0) return wrong(cat("root ", r.peer, "; need 0"));
  if (r.in.dtype != r.out.dtype || r.in.numel() != r.out.numel())
    return wrong(cat("input ", r.in.dtype, r.in.shape, " and output ", r.out.dtype, r.out.shape, " differ"));
  if (!r.in.contiguous() || !r.out.contiguous()) return wrong("need contiguous buffers");
  for (auto counts : {r.send_counts, r.recv_counts})
    if (!counts.empty() && (counts.size() != 1 || counts[0] != (r.in.shape.empty() ? 1 : r.in.shape[0])))
      return wrong(cat("row counts ", counts, "; need [", r.in.shape.empty() ? 1 : r.in.shape[0], "]"));
  return {};
}

class SelfCommunicator final : public Communicator {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }

  Ref<Work> start(const CommRequest& r) override {
    {
      MutexLock lock(mutex_);
      if (!cause_.empty()) return make_ref<Done>(Error(Code::kAborted, "collective aborted: " + cause_));
    }
    if (auto error = check(r)) return make_ref<Done>(error);
    if (r.kind != Collective::kBarrier && r.in.data != r.out.data && r.in.numel() > 0)
      std::memmove(r.out.data, r.in.data, r.in.numel() * itemsize(r.in.dtype));
    return make_ref<Done>();
  }

  Ref<Communicator> split(int color, int) override {
    return color < 0 ? Ref<Communicator>() : Ref<Communicator>(make_ref<SelfCommunicator>());
  }

  void abort(const std::string& cause) override {
    MutexLock lock(mutex_);
    if (cause_.empty()) cause_ = cause.empty() ? "no cause given" : cause;
  }

 private:
  Mutex mutex_;
  std::string cause_ WEFT_GUARDED_BY(mutex_);
};

}  // namespace

Ref<Communicator> make_self_communicator() { return make_ref<SelfCommunicator>(); }

}  // namespace weft::dist
