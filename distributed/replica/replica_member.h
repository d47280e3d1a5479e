// This process in its replica, and the replica in its group: the driver of control::MemberState.
//
//   ReplicaMember member({.name = "a", .address = "10.0.0.1:29600", .token = secret});
//   while (!member.next_view().ended) {
//     if (member.live().heals) ...                                // take the state from the others, then healed()
//     while (member.has_view() && member.step() < steps) {...}    // steps for member.count() replicas call vote()
//     if (member.has_view()) member.finish();
//   }
//
// Each process of the replica's job has one, and all call next_view(), healed() and finish() together. Only the process
// of rank 0 talks to the service of replicas, from a thread of its own; no step sends a message to it.
#pragma once
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "distributed/comm/store.h"
#include "distributed/control/group/view.h"
#include "distributed/launch/live_replicas.h"

namespace weft::dist {

class Processes;

struct ReplicaOptions {
  std::string name;     // the replica's name, unique in its group
  std::string address;  // address of the service of replicas, "host:port"
  std::string token;
  int64_t incarnation = 0;         // rises with each start of the replica; 0: from the clock of this host
  std::string facts = {};          // values that are equal in all replicas: a line "name value" for each
  std::string own = {};            // control::ViewMember::own
  int64_t replicas = 0;            // the mesh's number, which the service must have; 0: not compared
  int64_t step = 0;                // the first step that the state has not committed
  int64_t state_view = 0;          // ReplicaMember::state_view() when the checkpoint was written; 0: the state is new
  int ranks = 1;                   // ranks of this process, if the replica has no job
  Processes* job = nullptr;        // the processes of the replica; null: this process alone
  Store* store = nullptr;          // the job's store, if it has several processes
  std::string transport = "auto";  // between the replicas: see ViewGroupsOptions
  /// Timeout of waits for a view, for the service, and for other replicas in next_view().
  std::chrono::nanoseconds timeout = std::chrono::seconds(kDefaultTimeout);
  std::chrono::milliseconds report_every{10000};  // a wait prints a line each of this time
};

/// A view as this replica sees it.
struct LiveView {
  control::ReplicaView view = {};  // members by place; those with `heals` take the state from those without
  int place = 0;
  bool heals = false;  // this replica takes the state at view.start from the others before its next step
  bool ended = false;  // the run has ended, or this replica has left it; there is no view
};

class ReplicaMember final : public LiveReplicas {
 public:
  /// Starts to join. Throws on invalid options. Does not wait.
  explicit ReplicaMember(const ReplicaOptions& options);
  ~ReplicaMember() override;
  ReplicaMember(const ReplicaMember&) = delete;

  /// Whether the next step can run: false at first, and when a view is over. It changes in vote() and in decided()
  /// alone.
  bool has_view() const;
  /// Waits for the next view with this replica, and forms its groups. If it has a view, returns it at once. Throws if
  /// the service refuses this replica, and at the deadline.
  const LiveView& next_view();
  const LiveView& live() const;
  /// Whether the leaders alone have communicators in this view: the replicas gave own values, and have no equal ranks.
  bool leaders_only() const;
  /// Ends the healing of this replica, before its first step in the view. Returns whether the new state counts.
  /// Otherwise, as after an error (`good` is false), the view is over for this replica, and it keeps its earlier state.
  bool healed(bool good);
  /// The last step is committed, and its checkpoint is written: other replicas may end without it. Then next_view()
  /// waits until all replicas have committed it, or gives a view in which another replica needs this one.
  void finish();
  /// This replica leaves its group after the step in hand, which all commit. The next view has ended for it.
  void leave();

  /// The first step that is not committed.
  int64_t step() const;
  /// The view of the state, for its checkpoint.
  int64_t state_view() const;
  /// The largest number that a process of any replica gave to set_note() before the latest committed step; 0 after
  /// healing. If the next view has committed the step, it is the largest one of the replicas that were alive. At the
  /// end of the run, it is the note of the last step of the run.
  int64_t group_note() const;
  /// Sets note(): a number below 2^31. Any thread may call it, and so may a handler of signals.
  void set_note(int64_t note);

  // LiveReplicas.
  int count() const override;
  int place() const override;
  Ref<Communicator> communicator(int rank) override;
  void close(const std::string& cause) override;
  int64_t note() override;
  VoteResult vote(bool sums, int64_t note, Work::Deadline deadline) override;
  void decided(const VoteResult& result) override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace weft::dist
