// Values for tests: reproducible random tensors, and the same values in other memory layouts.
#pragma once
#include "framework/testing/compare.h"

namespace weft::testing {

/// Splitmix64: a separate small generator, so that tests of random ops do not use these ops.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t bits();
  /// Uniform in [0, 1).
  double uniform() { return static_cast<double>(bits() >> 11) * 0x1p-53; }
  /// Uniform in [lo, hi]; a whole number if `integer`.
  double between(double lo, double hi, bool integer);

 private:
  uint64_t state_;
};

/// A contiguous CPU tensor: floats uniform in [lo, hi], integers from [lo, hi], bools 0 or 1.
Tensor random_tensor(DType dtype, const Shape& shape, Random& random, double lo = -1, double hi = 1);

/// The layout of elements in memory.
enum class Layout {
  kContiguous,
  kTransposed,  // dims are stored from the last to the first
  kStepped,     // every dim skips elements: a slice of a larger tensor with an offset
  kBroadcast,   // the first dim longer than 1 has stride 0: its first row is repeated
};
inline constexpr Layout kLayouts[] = {Layout::kContiguous, Layout::kTransposed, Layout::kStepped, Layout::kBroadcast};
const char* name_of(Layout layout);

/// The values of `t` in this layout; memory between them has NaN or large numbers, which no kernel may read. kBroadcast
/// changes the values: read them back from the result.
Tensor with_layout(const Tensor& t, Layout layout);

}  // namespace weft::testing
