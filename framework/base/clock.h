// The clock of traces and measured launches.
#pragma once
#include <chrono>
#include <cstdint>

namespace weft::internal {

/// Nanoseconds of a steady clock.
inline int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

/// Microseconds of the same clock.
inline double now_us() { return static_cast<double>(now_ns()) * 1e-3; }

}  // namespace weft::internal
