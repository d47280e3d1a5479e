// The replica of this process, from the environment.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

namespace weft::control {

/// The variable in which a launcher gives its processes their incarnation, so that it can report their death.
inline constexpr const char* kIncarnationVariable = "REPLICA_INCARNATION";

struct ReplicaIdentity {
  std::string name;     // REPLICA, or REPLICA_GROUP_ID as torchft's scripts set it
  std::string address;  // REPLICAS: the address of the service of replicas, "host:port"
  /// REPLICAS_TOKEN, or the content of the file REPLICAS_TOKEN_FILE; may be empty on one host.
  std::string token;
  int64_t incarnation = 0;  // REPLICA_INCARNATION; 0: it is not set
};

/// Null if REPLICAS is not set. The first call takes the token out of the environment. Throws InvalidArgument if
/// REPLICAS is set, and no name is, or a value is wrong.
std::optional<ReplicaIdentity> replica_identity();
/// A new incarnation, from the clock of this host: microseconds.
int64_t new_incarnation();

}  // namespace weft::control
