// Placing buffers with known lifetimes in one arena.
#pragma once
#include <cstdint>
#include <span>

namespace weft::internal {

struct Interval {
  int64_t bytes = 0;            // a multiple of 64
  int32_t first = 0, last = 0;  // inclusive
  int64_t offset = 0;           // set by place_intervals
};

/// Sets offsets so that no two intervals overlap in time and memory; returns the size of the arena. Deterministic:
/// the best of greedy by size (Pisarchyk and Lee 2020), best fit in order of time, and greedy by need: what lives where
/// most is live first, then again with what stuck out before the rest.
int64_t place_intervals(std::span<Interval> intervals);

/// The most bytes live at once: no arena can be smaller.
int64_t most_live(std::span<const Interval> intervals);

}  // namespace weft::internal
