#include "distributed/launch/replica_rank.h"

#include <algorithm>
#include <utility>

#include "distributed/comm/transfer.h"

namespace weft::dist {
namespace {

void copy(const CommRequest& r) {
  if (r.in.data == r.out.data || r.in.numel() == 0) return;
  internal::Transfer all;
  all.from = {r.in}, all.to = {r.out};
  internal::run(all, {.begin = Shape::filled(r.in.shape.size(), 0), .extent = r.in.shape});
}

std::optional<Error> run(Communicator& c, const CommRequest& r, Work::Deadline deadline) {
  return c.start(r)->wait(deadline);
}

StridedView view_of(int64_t (&values)[2]) { return {values, kInt64, {2}, {1}}; }

// A communicator that is the rank's own object.
class OwnCommunicator : public Communicator {
 public:
  Ref<Communicator> split(int, int, Work::Deadline) override { refuse("split"); }
  void abort(const std::string&) override {}
  void retire(bool) override {}

 protected:
  [[noreturn]] static void refuse(std::string_view what) {
    WEFT_BUG_IF(true, "replicas: ", what,
                " in a step; the plan allows all_reduce over replica, and barriers over world");
  }
};

}  // namespace

// A sum that was started with the other replicas.
class ReplicaRank::Sum final : public Work {
 public:
  Sum(ReplicaRank& rank, Ref<Work> work, const CommRequest& request)
      : rank_(rank), work_(std::move(work)), request_(request) {}
  std::optional<Error> wait(Deadline deadline) override {
    if (!work_) return {};
    const std::optional<Error> error = work_->wait(deadline);
    if (!error) return {};
    work_ = {};  // ends the use of operand and result
    copy(request_);
    rank_.fail(error->what());
    return {};
  }
  bool done() override { return !work_ || work_->done(); }
  Deadline all_started() const override { return work_ ? work_->all_started() : Deadline(); }
  uint64_t number() const override { return work_ ? work_->number() : 0; }

 private:
  ReplicaRank& rank_;
  Ref<Work> work_;
  const CommRequest request_;
};

class ReplicaRank::Sums final : public OwnCommunicator {
 public:
  explicit Sums(ReplicaRank& rank) : rank_(rank) {}
  int rank() const override { return rank_.replicas_.place(); }
  int size() const override { return rank_.replicas_.count(); }
  Ref<Work> start(const CommRequest& r) override {
    if (r.kind != Collective::kAllReduce) refuse(to_string_view(r.kind));
    if (!rank_.has_sums_) {
      copy(r);
      return make_ref<Sum>(rank_, Ref<Work>(), r);
    }
    if (!rank_.others_) rank_.others_ = rank_.replicas_.communicator(rank_.rank_.rank());
    return make_ref<Sum>(rank_, rank_.others_->start(r), r);
  }

 private:
  ReplicaRank& rank_;
};

class ReplicaRank::Vote final : public Work {
 public:
  Vote(ReplicaRank& rank, Ref<Communicator> world) : rank_(rank), world_(std::move(world)) {}
  std::optional<Error> wait(Deadline deadline) override { return rank_.vote(*world_, deadline); }
  bool done() override { return false; }

 private:
  ReplicaRank& rank_;
  const Ref<Communicator> world_;
};

class ReplicaRank::Votes final : public OwnCommunicator {
 public:
  Votes(ReplicaRank& rank, Ref<Communicator> world) : rank_(rank), world_(std::move(world)) {}
  int rank() const override { return world_->rank(); }
  int size() const override { return world_->size(); }
  Ref<Work> start(const CommRequest& r) override {
    if (r.kind != Collective::kBarrier) refuse(to_string_view(r.kind));
    return make_ref<Vote>(rank_, world_);
  }

 private:
  ReplicaRank& rank_;
  const Ref<Communicator> world_;
};

ReplicaRank::ReplicaRank(LiveReplicas& replicas, RankContext& rank, bool speaks)
    : replicas_(replicas), rank_(rank), speaks_(speaks), sums_(make_ref<Sums>(*this)) {}
ReplicaRank::~ReplicaRank() = default;

void ReplicaRank::begin(std::vector<uint64_t> open) {
  open_ = std::move(open);
  others_ = {};
  has_sums_ = true;
}

Ref<Communicator> ReplicaRank::votes(Ref<Communicator> world) { return make_ref<Votes>(*this, std::move(world)); }

void ReplicaRank::fail(const std::string& cause) {
  if (std::exchange(has_sums_, false)) replicas_.close(cause);
}

bool ReplicaRank::holds() {
  if (has_sums_ && std::exchange(threw_, true)) return false;
  fail("an op of the step has failed");
  return true;
}

std::optional<Error> ReplicaRank::vote(Communicator& world, Work::Deadline deadline) {
  others_ = {};
  int64_t mine[2] = {has_sums_, speaks_ ? -replicas_.note() : 0}, least[2] = {}, result[2] = {};
  if (auto error =
          run(world, {.kind = Collective::kAllReduce, .op = ReduceOp::kMin, .in = view_of(mine), .out = view_of(least)},
              deadline))
    return error;
  if (world.rank() == 0) {
    try {
      const VoteResult r = replicas_.vote(least[0] != 0, -least[1], deadline);
      mine[0] = r.committed, mine[1] = r.note;
    } catch (const Error& e) {
      return e;
    } catch (const std::exception& e) {
      return Error(Code::kInternal, e.what());
    }
  }
  if (auto error = run(world, {.kind = Collective::kBroadcast, .in = view_of(mine), .out = view_of(result)}, deadline))
    return error;
  if (speaks_) replicas_.decided({result[0] != 0, result[1]});
  if (result[0] != 0) {
    threw_ = false;
    return {};
  }
  for (const uint64_t site : open_) rank_.finish(site);
  uncommitted_ = true;
  return Error(Code::kAborted,
               "the step is not committed, because a sum over replica or the vote failed; no cell has changed");
}

}  // namespace weft::dist
