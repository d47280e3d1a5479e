// For tests: the live replicas of one view as threads of this process, with faults.
#pragma once
#include <algorithm>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "distributed/comm/threads.h"
#include "distributed/launch/live_replicas.h"

namespace weft::testing {

/// The faults of a view. `place`: of the replica that has it; -1: none.
struct ReplicaFaults {
  struct Sum {
    int place = -1, rank = 0;
    int64_t number = 0;      // the sum of this rank that fails, from 0
    bool on_others = false;  // it fails on the other replicas only
  } sum;
  int dies_before_ack = -1;  // has all sums, and ends without the ack
  int dies_after_ack = -1;   // only its ack completes, and it ends after its step
};

/// A view of `count` replicas with `inner` ranks each. The decision after a failed ack is the one of
/// control::GroupState.
class ReplicaGroup {
 public:
  ReplicaGroup(int count, int inner, ReplicaFaults faults = {})
      : faults_(faults), leaders_(dist::make_thread_communicators(count, "leaders")) {
    for (int r = 0; r < inner; ++r) ranks_.push_back(dist::make_thread_communicators(count, "replica"));
    for (int p = 0; p < count; ++p) alive_.insert(p);
  }
  int count() const { return static_cast<int>(leaders_.size()); }
  /// The largest number of sums of a rank.
  int64_t sums() const { return sums_; }

  Ref<Communicator> communicator(int rank, int place) { return make_ref<Faulty>(*this, rank, place); }
  void close(const std::string& cause) {
    for (const auto& all : ranks_) all[0]->abort(cause);
    leaders_[0]->abort(cause);
  }
  dist::VoteResult vote(int place, bool sums, int64_t note, Work::Deadline deadline) {
    if (!sums) {
      close("a replica has not all sums");
      return {decision(place, false), 0};
    }
    if (faults_.dies_before_ack == place) {
      {
        std::lock_guard lock(mutex_);
        alive_.erase(place);
      }
      close("a replica died");
      throw Error(Code::kAborted, "the replica dies before the ack");
    }
    int64_t mine[1] = {note}, most[1] = {0};
    const Ref<Work> ack = leaders_[static_cast<size_t>(place)]->start({.kind = Collective::kAllReduce,
                                                                       .op = ReduceOp::kMax,
                                                                       .in = {mine, kInt64, {1}, {1}},
                                                                       .out = {most, kInt64, {1}, {1}}});
    const std::optional<Error> error = ack->wait(deadline);
    const bool lost = faults_.dies_after_ack >= 0 && faults_.dies_after_ack != place;
    if (error || lost) return {decision(place, true), 0};
    std::lock_guard lock(mutex_);
    reports_[place] = true;
    reported_.notify_all();
    return {true, most[0]};
  }

 private:
  // Fails a sum as if the connection had ended.
  struct FailedWork final : Work {
    std::optional<Error> wait(Deadline) override { return Error(Code::kUnavailable, "the sum fails"); }
    bool done() override { return true; }
  };
  struct Faulty final : Communicator {
    Faulty(ReplicaGroup& g, int r, int p) : group(g), rank_in(r), place(p) {}
    int rank() const override { return place; }
    int size() const override { return group.count(); }
    Ref<Work> start(const CommRequest& r) override {
      const int64_t number = started++;
      {
        std::lock_guard lock(group.mutex_);
        group.sums_ = std::max(group.sums_, started);
      }
      const ReplicaFaults::Sum& f = group.faults_.sum;
      const bool own = f.place == place, here = f.place >= 0 && f.rank == rank_in && f.number == number;
      if (here && own != f.on_others) return make_ref<FailedWork>();
      return group.ranks_[static_cast<size_t>(rank_in)][static_cast<size_t>(place)]->start(r);
    }
    Ref<Communicator> split(int, int, Work::Deadline) override { return {}; }
    void abort(const std::string&) override {}
    void retire(bool) override {}
    ReplicaGroup& group;
    const int rank_in, place;
    int64_t started = 0;
  };

  // All that live have reported: the step is committed if all of them have the sums.
  bool decision(int place, bool sums) {
    std::unique_lock lock(mutex_);
    reports_[place] = sums;
    reported_.notify_all();
    reported_.wait_for(lock, std::chrono::minutes(1),
                       [&] { return std::ranges::all_of(alive_, [&](int p) { return reports_.contains(p); }); });
    return std::ranges::all_of(alive_, [&](int p) { return reports_.at(p); });
  }

  const ReplicaFaults faults_;
  std::vector<Ref<Communicator>> leaders_;
  std::vector<std::vector<Ref<Communicator>>> ranks_;  // index: rank of a replica, place
  std::mutex mutex_;
  std::condition_variable reported_;
  std::set<int> alive_;          // places
  std::map<int, bool> reports_;  // key: place; whether it has all sums
  int64_t sums_ = 0;
};

/// A replica, in one view after the other.
class TestReplica final : public dist::LiveReplicas {
 public:
  void enter(std::shared_ptr<ReplicaGroup> view, int place) { view_ = std::move(view), place_ = place; }
  int count() const override { return view_->count(); }
  int place() const override { return place_; }
  Ref<Communicator> communicator(int rank) override { return view_->communicator(rank, place_); }
  void close(const std::string& cause) override { view_->close(cause); }
  int64_t note() override { return noted; }
  dist::VoteResult vote(bool sums, int64_t note, Work::Deadline deadline) override {
    return view_->vote(place_, sums, note, deadline);
  }
  void decided(const dist::VoteResult& r) override { last = r; }

  int64_t noted = 0;
  dist::VoteResult last;

 private:
  std::shared_ptr<ReplicaGroup> view_;
  int place_ = 0;
};

}  // namespace weft::testing
