// The one definition of the order in which reductions combine elements. Eager kernels and generated code both follow
// it, so the bits do not depend on SIMD width, layout or thread count.
//
// The n elements to reduce are numbered in row-major order of the reduced dims and split into blocks of kReduceBlock.
// In a block, logical lane l of kReduceLanes starts from the identity and takes elements l, l + 16, l + 32, ... in this
// order. Then lane l takes lane l + 8 (l < 8), l + 4, l + 2 and l + 1. A binary tree of neighbours combines the blocks'
// results: at step s = 1, 2, 4, ... block i (a multiple of 2s) takes block i + s if it exists. Each combination is
// op(earlier, later), in f32 for f32, bf16 and f16.
#pragma once

namespace weft {

inline constexpr int kReduceLanes = 16;
inline constexpr int kReduceBlock = 1024;

}  // namespace weft
