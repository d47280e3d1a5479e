// The one definition of the order in which running sums are added, on every device.
//
// A line, in the direction of the sum, is split into blocks of kScanBlock. Element i of a block is base + own. `own`
// adds the block's elements up to i in order, starting from 0; `base` adds the sums of all earlier blocks in the same
// way. `own` is in f32 for f32, bf16 and f16. Then `base` is added in f64 and rounded to f32 once for each block, so
// that the error does not grow with the line: |error of y_i| <= kScanBlock u sum_{k <= i} |x_k| + 2 u |y_i| to first
// order, u = 2^-24. (A line of one block is added in order, without `base`.)
#pragma once

namespace weft {

inline constexpr int kScanBlock = 128;

/// The type of `base` while it is added, for sums of type Acc.
template <class Acc>
struct ScanCarry {
  using type = Acc;
};
template <>
struct ScanCarry<float> {
  using type = double;
};

}  // namespace weft
