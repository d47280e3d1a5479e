// The one definition of the order in which running sums are added, on every device.
//
// A line, in the direction of the sum, is split into blocks of kScanBlock. Element i of a block is base + own. `own`
// adds the block's elements up to i in order, starting from 0; `base` adds the sums of all earlier blocks in the same
// way. The sums are in f32 for f32, bf16 and f16. (A line of one block is added in order, without `base`.)
#pragma once

namespace weft {

inline constexpr int kScanBlock = 128;

}  // namespace weft
