// The rates of this machine's memory and caches.
#pragma once
#include <cstdint>
#include <vector>

#include "compiler/cost/machine/machine.h"

namespace weft {

/// Rates of the threads of the current pool, for working sets from about 32 KiB to 128 MiB, each four times the one
/// before; with many threads the smallest are left out. A thread passes over its own part of the working set again and
/// again. The best of `repetitions` runs of 32 MiB or one pass counts: other processes only slow a run down. Takes
/// about 0.05 s for each repetition.
std::vector<MemoryRate> measured_memory_rates(int repetitions);
/// The bytes of these working sets, for a pool of `threads` threads.
std::vector<int64_t> working_sets(int64_t threads);

}  // namespace weft
