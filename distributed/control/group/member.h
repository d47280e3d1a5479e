// The logic of a replica's leader in its group: a function of a state and an event, without clock, socket or thread.
//
// A step of a view: each rank computes, and sums over the replicas of the view. The ranks of a replica then agree on
// whether they have all sums. If they have, the leader enters the ack, a collective of the leaders that gives the
// maximum of their stop bits. A complete ack means that every member has the sums, so the step is committed. If the
// leader sees any failure it keeps the sums, reports, and the next view decides (group.h).
//
// The driver carries out the actions in their order, sends status_of() after kReport and with each beat, and passes on
// the replies of the service. It may report an event late: an event of an earlier view, or one that the stage does not
// expect, changes nothing.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "distributed/control/group/group.h"

namespace weft::control {

enum class MemberStage {
  kJoining,    // it is no member of a view
  kHealing,    // it takes the state from the other members
  kComputing,  // it computes step `step`
  kAck,        // it has the sums of the step, and waits for the ack
  kReported,   // it waits for the next view
  kEnded,
};

struct MemberState {
  std::string name;
  int64_t incarnation = 1;  // rises with each start of the replica; before `accepted`, a later one may replace it
  std::string facts;
  std::string own = {};    // ViewMember::own
  int64_t replicas = 0;    // its mesh's number; 0: not compared with the service's
  int64_t step = 0;        // the first step that is not committed; at first the step of the checkpoint
  int64_t state_view = 0;  // the view of the state, which a checkpoint stores; 0: the state is new
  ReplicaView view = {};
  MemberStage stage = MemberStage::kJoining;
  bool sums = false;       // it has all sums of the step
  bool stop = false;       // the stop bit for the next ack
  int64_t note = 0;        // the step's note, if it has its sums; else group_note
  int64_t group_note = 0;  // the largest note of the members in the latest step that this process has committed
  bool leaves = false;
  bool finished = false;     // the last step is committed: it waits for the end of the run
  bool accepted = false;     // the service has accepted its incarnation
  std::string refused = {};  // why the process must end
};

struct MemberEvent {
  enum class Kind {
    kSums,         // all ranks of the replica have all sums of the step; `note` is the note of the replica
    kFailed,       // forming, healing or a sum failed
    kFinished,     // the last step is committed
    kAckComplete,  // `stop` and `note` are the maxima of the members
    kAckFailed,
    kHealed,  // the state is the state at the start of the view
    kStatus,  // the status of the group has arrived
    kLeave,   // the replica wants to leave after this step
  };
  Kind kind;
  int64_t view = 0;  // the view of the first six kinds
  bool stop = false;
  int64_t note = 0;
  GroupStatus status = {};
};

enum class MemberAction {
  kEnterAck,     // its stop bit is MemberState::stop
  kCommit,       // write the results of the step, whose sums were kept
  kRetry,        // drop the step in hand, if there is one: it is not committed, and is computed again
  kCloseGroups,  // end all collectives of the view, so that the other members fail at once
  kReport,       // send status_of()
  kForm,         // make the groups of the view; a failure is kFailed
  kHeal,         // take the state from the members that do not heal; keep the old one until kHealed ends this stage
  kEnd,          // end the process
};

/// The transition. Never throws.
std::vector<MemberAction> apply(MemberState& member, const MemberEvent& event);

/// The status that the service needs now.
ReplicaStatus status_of(const MemberState& member);

}  // namespace weft::control
