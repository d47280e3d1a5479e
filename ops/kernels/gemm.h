// Matrix products on strided views. oneDNN (f32, bf16) runs on single-threaded tiles whose sizes follow from the shape
// alone, so the bits do not depend on the thread count; f16 goes through f32 tiles, f64 through Eigen tiles. Up to four
// rows, or one column, stream through kernels of our own.
#pragma once
#include <cstdint>

#include "framework/tensor/view.h"

namespace weft::kernels {

/// c[...,M,N] = a[...,M,K] x b[...,K,N] with the same batch dims, none or several. a and b share a dtype and have any
/// strides (0 where broadcast, heads inside rows, transposed: read without a copy where one stride is 1); c is
/// contiguous, of the same dtype or f32 (floats), i64 or the same (integers). Floats narrower than f64 accumulate in
/// f32. K = 0 gives zeros. `workspace` has gemm_workspace bytes, 64-byte aligned (may be null if 0).
void gemm(const StridedView& a, const StridedView& b, const StridedView& c, void* workspace);
/// Bytes that gemm needs: scratch for min(tiles, max_threads()) tasks, so it is fixed for a process, whatever
/// set_num_threads says.
int64_t gemm_workspace(DType in, DType out, int64_t batch, int64_t m, int64_t n, int64_t k);

/// Products over groups of rows; group e is rows offsets[e] to offsets[e + 1] (offsets: i64 or i32 [E + 1], ascending,
/// from 0 or more, at most T).
enum class GroupedMode {
  rows,         // y[T,N]:   y[rows of e] = x[rows of e] x w[e];     a = x[T,K], b = w[E,K,N]
  contraction,  // dw[E,K,N]: dw[e] = x[rows of e]^T x g[rows of e];  a = x[T,K], b = g[T,N]
};
/// Rows in no group and groups without rows give zeros. a and b share a dtype (any strides); out is contiguous, of the
/// same dtype or f32. Bad offsets throw.
void grouped_gemm(GroupedMode mode, const StridedView& a, const StridedView& b, const StridedView& offsets,
                  const StridedView& out, void* workspace);
int64_t grouped_gemm_workspace(GroupedMode mode, DType in, DType out, int64_t groups, int64_t t, int64_t k, int64_t n);

}  // namespace weft::kernels
