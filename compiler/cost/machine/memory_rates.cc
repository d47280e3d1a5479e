#include "compiler/cost/machine/memory_rates.h"

#include <algorithm>
#include <cstring>

#include "compiler/cost/machine/best_of_runs.h"
#include "compiler/cost/machine/memory_isa.h"
#include "framework/base/cpu.h"
#include "framework/base/thread_pool.h"

namespace weft {
namespace {

constexpr int64_t kLeast = 32 << 10, kMost = 128 << 20, kStep = 4, kRun = 32 << 20;
constexpr int64_t kUnit = 2048;  // unit of a thread's part: half of it is a multiple of a loop iteration's bytes

const MemoryFns& fns() {
  static constexpr const MemoryFns& (*kFns[kNumIsas])() = {baseline::memory_fns, avx2::memory_fns, avx512::memory_fns};
  return kFns[static_cast<int>(selected_isa())]();
}

}  // namespace

std::vector<int64_t> working_sets(int64_t threads) {
  std::vector<int64_t> sets;
  for (int64_t size = kLeast; size <= kMost; size *= kStep) {
    const int64_t all = threads * std::max(kUnit, size / threads / kUnit * kUnit);
    if (sets.empty() || all > sets.back()) sets.push_back(all);  // many threads
  }
  return sets;
}

std::vector<MemoryRate> measured_memory_rates(int repetitions) {
  const int64_t threads = ThreadPool::current().size();
  const internal::AlignedMemory memory(kMost);
  std::memset(memory.data, 1, kMost);  // touches it
  const MemoryFns& f = fns();
  std::vector<uint64_t> seen(static_cast<size_t>(threads));  // results that are kept, so that reads are not left out
  std::vector<MemoryRate> rates;
  for (const int64_t size : working_sets(threads)) {
    const int64_t part = size / threads, passes = std::max<int64_t>(1, kRun / size);
    // Bytes per second of the best of several runs. Each run passes over all parts.
    const auto best = [&](double bytes_of_byte, auto&& pass) {
      const double seconds = internal::best_seconds(repetitions, [&] {
        parallel_for(threads, [&](int64_t t) {
          uint64_t sum = 0;
          for (int64_t k = 0; k < passes; ++k) sum ^= pass(memory.data + t * part);
          seen[static_cast<size_t>(t)] ^= sum;
        });
      });
      return bytes_of_byte * static_cast<double>(size * passes) / seconds;
    };
    MemoryRate rate{.bytes = static_cast<double>(size)};
    const auto bytes = static_cast<size_t>(part);
    rate.read = best(1, [&](const char* at) { return f.read(at, part); });
    rate.write = std::max(best(1, [&](char* at) { return f.write(at, part, bytes), 0; }),
                          best(1, [&](char* at) { return std::memset(at, 1, bytes), 0; }));
    rate.copy = std::max({best(1, [&](char* at) { return f.copy(at, at + part / 2, part / 2), 0; }),
                          best(1, [&](char* at) { return std::memcpy(at, at + part / 2, bytes / 2), 0; }),
                          best(2, [&](char* at) { return f.update(at, part), 0; })});
    rates.push_back(rate);
  }
  return rates;
}

}  // namespace weft
