// The one definition of the order in which reductions combine, for eager kernels and generated code alike, so that the
// bits depend neither on SIMD width, nor on layout, nor on the thread count.
//
// The n elements to reduce are numbered in row-major order of the reduced dims. They are cut into blocks of
// kReduceBlock. In a block, logical lane l of kReduceLanes starts from the identity and takes elements l, l + 16,
// l + 32, ... one after another; then lane l takes lane l + 8 (l < 8), l + 4, l + 2 and l + 1. The blocks' results are
// combined by a binary tree of neighbours: at step s = 1, 2, 4, ... block i (a multiple of 2s) takes block i + s where
// there is one. Everything is op(earlier, later), in f32 for f32, bf16 and f16.
#pragma once

namespace weft {

inline constexpr int kReduceLanes = 16;
inline constexpr int kReduceBlock = 1024;

}  // namespace weft
