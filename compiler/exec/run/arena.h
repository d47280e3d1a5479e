// Assigns offsets in one arena to buffers with known lifetimes.
#pragma once
#include <cstdint>
#include <span>

namespace weft::internal {

struct Interval {
  int64_t bytes = 0;            // a multiple of 64
  int32_t first = 0, last = 0;  // inclusive
  int64_t offset = 0;           // set by place_intervals
};

/// Sets offsets so that no two intervals overlap in both time and memory; returns the size of the arena. Deterministic.
/// Takes the best result of:
/// - greedy by size (Pisarchyk and Lee 2020);
/// - best fit in order of time;
/// - greedy by need: intervals that are live when most bytes are live come first. Each further round moves the
///   intervals that end at the top of the arena to the front.
int64_t place_intervals(std::span<Interval> intervals);

/// The most bytes live at once, a lower bound of the arena's size.
int64_t most_live(std::span<const Interval> intervals);

}  // namespace weft::internal
