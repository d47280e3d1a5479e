// The clock of traces and measured launches.
#pragma once
#include <chrono>

namespace weft::internal {

/// Microseconds of a steady clock.
inline double now_us() {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace weft::internal
