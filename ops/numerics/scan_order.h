// The one definition of the order in which running sums are added up, on every device.
//
// A line, in the direction of the sum, is cut into blocks of kScanBlock. Element i of a block is base + own: `own` sums
// the block's elements up to it one after another from 0 on, `base` the whole sums of the blocks before it likewise. In
// f32 for f32, bf16 and f16. (Lines of one block: one after another, and nothing else.)
#pragma once

namespace weft {

inline constexpr int kScanBlock = 128;

}  // namespace weft
