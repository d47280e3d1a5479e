// The leader of a replica at the service of replicas (group_server.h): member.h with a thread that sends its status
// each 200 ms, and at each change, and reads the replies. The thread needs no lock that a computation holds. It
// connects again and again: steps need no service, only the next view does.
//
// Errors are weft::Error: kFailedPrecondition if the service refuses this replica, kAborted if it does so because the
// launcher has reported the end of this replica, kPermissionDenied with another token, kDeadlineExceeded if a view or
// the service does not come within the timeout.
#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "distributed/control/group/member.h"

namespace weft::control {

struct GroupClientOptions {
  std::string address;  // address of the service, "host:port"
  std::string token;
  std::string name;                               // name of the replica
  int64_t incarnation = 0;                        // 0: from the clock of this host
  std::string facts = {};                         // values that are equal in all replicas: a line "name value" for each
  std::string own = {};                           // ViewMember::own
  int64_t replicas = 0;                           // the mesh's number; 0: not compared with the service's
  int64_t step = 0;                               // the first step that the state has not committed
  int64_t state_view = 0;                         // the view of the state, from its checkpoint; 0: the state is new
  std::chrono::milliseconds report_every{10000};  // a wait prints a line each of this time
  /// Ends the collectives of view `number`. Called by the client's thread and by apply(), perhaps twice; may not call
  /// the client, and may not wait.
  std::function<void(int64_t number, const std::string& cause)> close;
};

class GroupClient {
 public:
  using Deadline = std::chrono::steady_clock::time_point;

  /// Starts to connect and to join. Throws on invalid options. Does not wait.
  explicit GroupClient(const GroupClientOptions& options);
  /// Closes the connection: unless the member has left, the others learn that this replica is gone.
  ~GroupClient();
  GroupClient(const GroupClient&) = delete;

  MemberState member() const;
  /// Passes an event of this kind, any but kStatus, to the member, and sends its status if that changes. Returns
  /// whether `action` is among the actions.
  bool apply(MemberEvent::Kind kind, int64_t view, MemberAction action = MemberAction::kEnd, bool stop = false,
             int64_t note = 0);
  /// Waits until `over`, or until the member has ended. Throws the refusal, and at the deadline. A replica that the
  /// service knows and that is no member may be a spare: it has no deadline, and the wait ends at `look`.
  MemberState await(const std::function<bool(const MemberState&)>& over, Deadline deadline,
                    Deadline look = Deadline::max());
  /// The next round of this view: gives a value to all members, and returns the values of all members, by place. Throws
  /// kAborted when the view is over for this member.
  std::vector<std::string> exchange(int64_t view, const std::string& mine, Deadline deadline);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Tells the service at `address` that a process of replica `name` has ended, for a launcher. Returns whether the
/// service answered within a second. Starts threads of gRPC: call it in a child process.
bool report_death_of_replica(const std::string& address, const std::string& token, const std::string& name,
                             int64_t incarnation);

}  // namespace weft::control
