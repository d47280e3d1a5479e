// Statuses of replicas and of their group as messages (control.proto).
#pragma once
#include "distributed/control/control.pb.h"
#include "distributed/control/group/group.h"

namespace weft::control {

/// Limits of the values that a member gives to the others (ReplicaCards): rounds, and bytes of all rounds.
inline constexpr int kCardRounds = 8;
inline constexpr size_t kCardBytes = size_t{1} << 18;

ReplicaReport message_of(const ReplicaStatus& status);
GroupReply message_of(const GroupStatus& status);
/// The status of a message, which comes from outside: apply() checks its values. A stand that does not exist becomes a
/// damaged status, which apply() refuses.
ReplicaStatus status_of(const ReplicaReport& message);
/// Throws InvalidArgument if the view is damaged.
GroupStatus status_of(const GroupReply& message);

}  // namespace weft::control
