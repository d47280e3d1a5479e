// The arithmetic of extents and byte counts: a result that 64 bits cannot hold is the largest or smallest int64. A
// shape rule calculates with it, and the one check of its result (checked_numel) refuses both.
#pragma once
#include <cstdint>
#include <limits>

namespace weft {

/// a + b, or the nearest int64.
constexpr int64_t saturating_add(int64_t a, int64_t b) {
  int64_t r = 0;
  if (!__builtin_add_overflow(a, b, &r)) return r;
  return b < 0 ? std::numeric_limits<int64_t>::min() : std::numeric_limits<int64_t>::max();
}
/// a * b, or the nearest int64.
constexpr int64_t saturating_mul(int64_t a, int64_t b) {
  int64_t r = 0;
  if (!__builtin_mul_overflow(a, b, &r)) return r;
  return (a < 0) != (b < 0) ? std::numeric_limits<int64_t>::min() : std::numeric_limits<int64_t>::max();
}

}  // namespace weft
