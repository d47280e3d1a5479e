// The logic of the service of a group of replicas: a function of a state and an event, without clock, socket or thread.
// Replicas are jobs that train one model together, and each may die and come back. The service decides on views
// (view.h): which replicas continue from which step.
//
// The leader of a replica (member.h) sends its status at each change and with each beat, and gets the status of the
// group as the reply. A status is complete: a lost one is replaced by the next one, and a repeated one changes nothing.
// A status counts only for the view that it names. So a late status is harmless. A restarted service needs its
// current view alone, because leaders send the rest again.
//
// The next view begins when every member of the view has reported or is gone. `top` is the latest reported step of the
// members with the state. The first step of the next view is
//   top + 1  if all members with the state are at step `top` and have its sums: a dead member may have committed this
//            step, and each of these members can;
//   top      otherwise: if a member committed step top - 1, all members had the sums of that step.
// The next view contains these members, then joiners by name, `replicas` in all: further joiners wait. A process
// without the state of the start heals. If no member with the state is left, the view starts from the state of the
// latest view and step. A process has kept this state, or has a checkpoint of it.
//
// A member gives a note with the sums of a step, and the ack gives all of them the largest one. A view that commits a
// step has the largest note of its reports: a member in doubt takes it from there.
//
// A process whose end a launcher has reported stays dead, even if it sends a status, so that a death makes one view.
// A later incarnation of the replica takes its place.
//
// A member that has committed the last step reports that it has finished, and waits: another member may be in doubt
// about this step. The next view then ends the run. All processes that took part in the run end. A later process can
// continue the run if it has the state of this step.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "distributed/control/group/view.h"

namespace weft::control {

struct GroupConfig {
  std::string job = {};
  int64_t replicas = 1;      // the size of the mesh dimension: a view has at most this number of members
  int64_t replicas_min = 1;  // the group waits for this number of replicas
  /// A process without a status for this time is gone.
  int64_t silence_ms = 2000;
  /// A process without a connection for this time is gone.
  int64_t reconnect_ms = 400;
  /// Time for members to connect after a restart of the service.
  int64_t restart_ms = 5000;
  /// The time that a group waits for `replicas` processes, and all replicas of its view, if no member has the state. A
  /// process with a kept state must return in this time, or its steps may be cancelled.
  int64_t gather_ms = 5000;
  /// The service remembers the reported end of a process (GroupEvent::kDeath) until the process has sent no status for
  /// this time: a launcher ends all processes of a replica within it.
  int64_t ended_ms = 60000;
  /// If the service itself did not run for this time, the gap does not count as silence.
  int64_t stall_ms = 500;
};

/// The state of a replica that reports or joins.
struct ReplicaStatus {
  enum class Stand {
    kWorks,    // the fields below are not used
    kReports,  // it is a member of the view, and waits for the next one
    kJoins,    // it is no member of the view, and wants to be
    kLeaves,   // its process ends
  };
  std::string name;
  int64_t incarnation = 0;  // rises with each start of the replica; 1 or more
  int64_t view = 0;         // the latest view that it knows
  Stand stand = Stand::kWorks;
  int64_t state_view = 0;  // the view of its state, in memory or in a checkpoint; 0: the state is new
  int64_t step = 0;        // the first step that its state has not committed
  bool sums = false;       // it has all sums of this step
  bool finished = false;   // this step is not to be made: the run ends before it
  int64_t note = 0;        // the note of this step, if it has its sums, or of the step before
  std::string facts = {};  // ReplicaView::facts; empty unless it joins
  int64_t replicas = 0;    // the replicas of its mesh, if it joins; 0: not compared with GroupConfig::replicas
  std::string own = {};    // ViewMember::own; empty unless it joins

  bool operator==(const ReplicaStatus&) const = default;
};

/// The state of the group for one replica.
struct GroupStatus {
  int64_t number = 0;          // number of the current view
  ReplicaView view = {};       // the current view, if the replica does not know it; otherwise without number
  bool report_wanted = false;  // the members must report: one of them is gone or has reported
  bool stop_wanted = false;    // the members must set their stop bits: a process waits to join
  std::string refused = {};    // why the process must end; "": it need not
  int64_t incarnation = 0;     // if it is refused because of a later incarnation of its replica: this incarnation
  bool ended = false;          // it is refused because its launcher has reported its end
};

/// A process that the service has heard of.
struct ReplicaRecord {
  int64_t incarnation = 0;
  ReplicaStatus status = {};  // its report or join in the current view; kWorks: none
  bool gone = false;          // it is gone, until its next status
  uint64_t connection = 0;
  int64_t known = 0;  // the latest view that it knows
  int64_t heard_ms = 0;
  int64_t closed_ms = -1;  // when its connection closed; -1: it has one
};

/// The latest incarnation of a replica whose end a launcher has reported.
struct EndedReplica {
  int64_t incarnation = 0;
  int64_t heard_ms = 0;  // the time of the report, or of a later status
};

struct GroupState {
  GroupConfig config;
  ReplicaView view = {};                               // the journal keeps it; a restart loses the rest
  std::map<std::string, ReplicaRecord> replicas = {};  // all members of the view, and others, by name
  std::map<std::string, EndedReplica> ended = {};      // key: name; at most kReplicas
  int64_t now_ms = 0;
  int64_t gather_from_ms = -1;  // when the time to gather (gather_ms) began; -1: it does not run
};

struct GroupEvent {
  enum class Kind {
    kStatus,
    kClosed,  // the connection is gone
    kTick,    // time passes; several times within each limit of the config
    kDeath,   // the launcher reports that the process `status.name`, `status.incarnation` has ended, or ends at once
  };
  Kind kind;
  int64_t now_ms = 0;       // time of a steady clock; never decreases
  uint64_t connection = 0;  // kStatus and kClosed: the number of the connection; not 0, and later ones are larger
  ReplicaStatus status = {};
};

struct GroupOutcome {
  std::vector<std::pair<uint64_t, GroupStatus>> replies;  // connections and messages
  std::vector<ReplicaView> views;  // the new views; write them to the journal before you send the replies
};

/// The transition. The outcome and the new state depend on the old state and the event alone. Never throws.
GroupOutcome apply(GroupState& state, const GroupEvent& event);

/// The status of the group for a replica whose latest view is `known`.
GroupStatus status_of(const GroupState& state, int64_t known);

/// Makes a view of the journal the current one. Returns false, and changes nothing, if it cannot follow.
bool commit(GroupState& state, const ReplicaView& view);
/// The beginning of the titles of all journals of groups.
inline constexpr const char* kGroupTitle = "weft journal of replicas 1";
/// The beginning of the titles of all journals of a job.
std::string title_of_job(const std::string& job);
/// The title of the journal of this state.
std::string title_of(const GroupState& state);
/// The number of replicas in such a title; 0: it has none.
int64_t replicas_in(std::string_view title);
/// Reads a record of the journal (record_of() a view) and commits it. Returns "", or why it does not fit.
std::string commit(GroupState& state, const std::string& record);
/// Call it after the last view of the journal: members get `restart_ms` to connect.
void restart(GroupState& state, int64_t now_ms);

}  // namespace weft::control
