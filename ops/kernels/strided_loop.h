// Runs a contiguous loop function over strided operands. It collapses dims, splits the space into blocks that depend on
// the shape only, copies operands whose inner stride is neither 0 nor 1 through small tiles, and distributes the blocks
// over the pool.
#pragma once
#include <cstdint>
#include <span>

#include "framework/tensor/view.h"
#include "ops/kernels/tables.h"

namespace weft::kernels {

inline constexpr int kMaxOperands = 3;

/// out[i] = fn(in[0][i], ...) for every position of out.shape; operands have out's shape or one element. `grain` is the
/// number of elements worth a task. Returns nonzero if fn did.
int strided_apply(PwFn fn, std::span<const StridedView> in, const StridedView& out, int64_t grain);

/// dst[r, c] = src[r, c] for r < rows, c < cols with strides in elements of `size` bytes (1, 2, 4 or 8).
void copy_2d(const void* src, int64_t src_row, int64_t src_col, void* dst, int64_t dst_row, int64_t dst_col,
             int64_t rows, int64_t cols, int64_t size);

}  // namespace weft::kernels
