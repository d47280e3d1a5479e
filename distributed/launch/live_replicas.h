// LiveReplicas: the replicas of the current view, as the world of one replica (world.h) sees them. The owner of the
// view (the driver of control::MemberState) implements it.
//
// A process with LiveReplicas belongs to one replica: its job has the ranks of the mesh without `replica`. Rank r of
// the replica at place p is rank p * S + r of the mesh replica_m,inner, where S is the size of `inner`. A step on this
// mesh runs the part of this replica. Only sums over `replica`, and then the vote, leave the replica:
//   sums  A sum that fails leaves its operand as its result, marks the step of its rank, and calls close(). This rank
//         starts no later sum of this step, and continues to compute. An op that throws counts as a failed sum, because
//         it may have got values of a failed sum from another rank. A rank with all sums counts it once.
//   vote  At the commit point all ranks of the replica agree on whether each of them has all sums. Rank 0 calls vote(),
//         and all ranks get its result. No rank has written a cell before, and each holds its sums. So a step in doubt
//         stays in the ranks that wait for vote(), which may last until the next view decides on it.
// Each replica passes the whole batch of the view, the parts of all replicas by place, as each process of a job does.
// A committed step goes on to its writes. Otherwise the call of the step throws Uncommitted.
#pragma once
#include <cstdint>
#include <string>

#include "framework/dispatch/rank/communicator.h"

namespace weft::dist {

struct VoteResult {
  bool committed = false;
  int64_t note = 0;  // for all processes of the replica, such as the largest signal code of the view
};

/// Each process of a replica has one. Between steps, count(), place() and the communicators may change.
class LiveReplicas {
 public:
  virtual ~LiveReplicas() = default;

  /// The number of live replicas. A step runs if its mesh has this number.
  virtual int count() const = 0;
  /// The place of this replica among them, from 0: its coordinate along `replica`.
  virtual int place() const = 0;
  /// The communicator of the ranks `rank` of all live replicas, by place. `rank` is a rank of this replica in this
  /// process, whose thread calls it in each step at the first sum. Never throws: if there is no group, it returns a
  /// communicator whose collectives fail.
  virtual Ref<Communicator> communicator(int rank) = 0;
  /// Aborts the communicators of the view, and the communicator of the leaders, so that the other replicas fail at
  /// once. Any thread may call it, several times in a view.
  virtual void close(const std::string& cause) = 0;

  /// A number of this process for the next vote, 0 or more, such as the code of a signal. vote() gets the largest one
  /// of the replica.
  virtual int64_t note() { return 0; }
  /// In the process of rank 0, by its thread: whether the step is committed. `sums`: all ranks of the replica have all
  /// sums; the implementation then enters the ack of the leaders. If the ack fails, it returns when a view has decided.
  /// Throws Error if none has until the deadline, or if this replica must end: the call of the step then fails.
  virtual VoteResult vote(bool sums, int64_t note, Work::Deadline deadline) = 0;
  /// The result of the vote, in each process of the replica, before the step writes a cell. It may not wait for other
  /// ranks.
  virtual void decided(const VoteResult&) {}

  /// The replicas of the steps that this thread compiles; null: `replica` is a dimension of the job's own ranks.
  static LiveReplicas* current();
};

/// Sets LiveReplicas::current() of this thread during its lifetime. Steps keep the replicas for which they were
/// compiled.
class ScopedReplicas {
 public:
  explicit ScopedReplicas(LiveReplicas& replicas);
  ~ScopedReplicas();
  ScopedReplicas(const ScopedReplicas&) = delete;

 private:
  LiveReplicas* previous_;
};

/// The call of a step on live replicas was not committed: no cell has changed, and the step can be called again at
/// once, or a step for another number of replicas.
class Uncommitted : public Error {
 public:
  using Error::Error;
};

}  // namespace weft::dist
