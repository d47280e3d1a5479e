// Our own kernels of matrix products: groups of rows given by run-time offsets (experts), and plain batches that do not
// use cuBLASLt (integers, tests). bf16 and f16 run on tensor cores with f32 sums, other types with plain arithmetic.
// Terms are added in order, so the bits of an element depend only on the shape, not on the hook that consumes it.
#pragma once
#include <cstdint>
#include <span>
#include <string>

#include "compiler/targets/cuda/intrinsics/kernel.h"
#include "framework/ir/attr.h"
#include "framework/tensor/dtype.h"
#include "framework/tensor/view.h"

namespace weft::cuda {

/// y = a b per group. Strides are in elements: a(e, m, k) is at e a_e + m a_m + k a_k; b(e, k, n) likewise.
struct GroupedGemm {
  enum class GroupedBy {
    rows,         // group e is rows offsets[e] to offsets[e + 1] of a[m, k] and of y[m, n], times b[e, k, n]; rows in
                  // no group are zeros
    contraction,  // y[e, m, n] sums a[m, k] b[k, n] over the k from offsets[e] to offsets[e + 1]
    dense,        // y[e, m, n] = a[e, m, k] b[e, k, n]
  };
  GroupedBy mode = GroupedBy::rows;
  DType in = kFloat32, out = kFloat32;      // f64, i32, i64, or f32, bf16, f16 (out: the same, or f32)
  DType offsets = kInt64;                   // or i32
  int64_t groups = 1, m = 1, n = 1, k = 1;  // m, and k in mode contraction: over all groups
  int64_t a_e = 0, a_m = 0, a_k = 1, b_e = 0, b_k = 0, b_n = 1;
  int64_t y_row = 0;  // between rows of y, over all groups; its columns are contiguous
  // Whether operands and y start on 16 bytes.
  bool aligned_a = true, aligned_b = true, aligned_y = true;
};

/// Consumes finished sums instead of writing them to y. `text` defines
///     static inline void finish(const P& p, int64 row, int col, int count, const f32 (&v)[8])
/// (f64, i32, i64 for products of these types). It receives the sums of columns col to col + count of a row of y, each
/// once. `fields` declares the members of P that it reads, after the fields of GemmParams.
struct GemmHook {
  std::string fields, text;
  std::string structure;  // if not empty: the whole struct P, with at least the fields of GemmParams except y
  std::string prelude;    // text before everything else
};

/// The parameter struct P of a kernel without a hook.
struct GemmParams {
  const void *a = nullptr, *b = nullptr, *offsets = nullptr;
  void* y = nullptr;
  int32_t* bad = nullptr;  // null, or set to 1 if offsets do not ascend or are not in [0, number of rows]
};

struct GroupedGemmKernel {
  Kernel kernel;
  int64_t most_tiles = 0;  // 0: y is empty and nothing is launched
  int blocks = 1;          // per multiprocessor
  /// A grid for a device with this many multiprocessors. Each block processes several tiles.
  Grid grid(int multiprocessors) const;
};

/// The kernel for a problem on devices of compute capability `sm` / 10. For 90 it may use warpgroup tensor cores and
/// then runs on no other device. Throws weft::Error for more than 4096 groups, the limit of shared memory.
GroupedGemmKernel gemm_kernel(const GroupedGemm& problem, const std::string& symbol, const GemmHook* hook = nullptr,
                              int sm = 80);

/// The problem of a grouped_dot with these attributes and operands (addresses give the alignments), with contiguous y.
GroupedGemm grouped_problem(const Attrs& attrs, std::span<const StridedView> in, const StridedView& out);

}  // namespace weft::cuda
