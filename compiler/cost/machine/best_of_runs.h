// Helpers for measurements of this machine: the fastest of several runs, and memory to run on.
#pragma once
#include <algorithm>
#include <cstdint>
#include <memory>

#include "framework/base/clock.h"

namespace weft::internal {

/// Seconds of the fastest of `runs` runs: other processes only slow a run down. At least 1 ns.
double best_seconds(int runs, auto&& run) {
  double best = 1e30;
  for (int i = 0; i < runs; ++i) {
    const double start = now_us();
    run();
    best = std::min(best, now_us() - start);
  }
  return 1e-6 * std::max(best, 1e-3);
}

/// Memory aligned to 64 bytes that the allocator's statistics do not include.
struct AlignedMemory {
  explicit AlignedMemory(int64_t bytes) : memory(new char[static_cast<size_t>(bytes + 64)]) {
    data = reinterpret_cast<char*>((reinterpret_cast<uintptr_t>(memory.get()) + 63) & ~uintptr_t{63});
  }
  std::unique_ptr<char[]> memory;
  char* data;
};

}  // namespace weft::internal
