// gRPC writes what happens on its connections to standard error; here only where GRPC_VERBOSITY asks for it.
#pragma once
#include <grpc/support/log.h>

#include <cstdlib>

namespace weft::control {

inline void quiet_grpc() {
  if (!std::getenv("GRPC_VERBOSITY")) gpr_set_log_function([](gpr_log_func_args*) {});
}

/// The metadata that has the token.
inline constexpr const char* kTokenKey = "weft-token-bin";

}  // namespace weft::control
