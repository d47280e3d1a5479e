// Stops gRPC from logging connection events to standard error, unless GRPC_VERBOSITY is set.
#pragma once
#include <grpc/support/log.h>

#include <cstdlib>

namespace weft::control {

inline void quiet_grpc() {
  if (!std::getenv("GRPC_VERBOSITY")) gpr_set_log_function([](gpr_log_func_args*) {});
}

/// The metadata key of the token.
inline constexpr const char* kTokenKey = "weft-token-bin";

}  // namespace weft::control
