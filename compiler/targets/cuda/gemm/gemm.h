// Kernels of matrix products that are ours: groups of rows given by run-time offsets (experts), and plain batches where
// cuBLASLt is not used (integers, tests). bf16 and f16 run on tensor cores with f32 sums, other types on plain
// arithmetic; sums go term by term, so an element's bits follow from the shape alone, whatever is done with it after.
#pragma once
#include <cstdint>
#include <span>
#include <string>

#include "compiler/targets/cuda/intrinsics/kernel.h"
#include "framework/ir/attr.h"
#include "framework/tensor/dtype.h"
#include "framework/tensor/view.h"

namespace weft::cuda {

/// y = a b per group. Strides are in elements: a(e, m, k) at e a_e + m a_m + k a_k, b(e, k, n) likewise.
struct GroupedGemm {
  enum class Mode {
    rows,         // group e is rows offsets[e] to offsets[e + 1] of a[m, k] and of y[m, n], by b[e, k, n]; rows of no
                  // group give zeros
    contraction,  // y[e, m, n] sums over those k of a[m, k] and b[k, n] which are offsets[e] to offsets[e + 1]
    dense,        // y[e, m, n] = a[e, m, k] b[e, k, n]
  };
  Mode mode = Mode::rows;
  DType in = kFloat32, out = kFloat32;      // f64, i32, i64, or f32, bf16, f16 (out: the same, or f32)
  DType offsets = kInt64;                   // or i32
  int64_t groups = 1, m = 1, n = 1, k = 1;  // m, and k in mode contraction: of all groups together
  int64_t a_e = 0, a_m = 0, a_k = 1, b_e = 0, b_k = 0, b_n = 1;
  int64_t y_row = 0;  // of y's rows, those of all groups one after another; its columns lie side by side
  // Operands and y start on 16 bytes.
  bool aligned_a = true, aligned_b = true, aligned_y = true;
};

/// What is done with finished sums in place of writing them to y: `text` defines
///   static inline void finish(const P& p, int64 row, int col, int count, const f32 (&v)[8])
/// (f64, i32, i64 where these are multiplied), which takes the sums of columns col to col + count of a row of y, each
/// once; `fields` are declarations of what it reads of P, behind the fields of GemmParams.
struct GemmHook {
  std::string fields, text;
  std::string structure;  // not empty: all of struct P, with at least the fields of GemmParams but for y
  std::string words;      // that stand before everything
};

/// The parameter struct P of a kernel without a hook.
struct GemmParams {
  const void *a = nullptr, *b = nullptr, *offsets = nullptr;
  void* y = nullptr;
  int32_t* bad = nullptr;  // null, or set to 1 if offsets are not ascending from 0 or more to the number of rows
};

struct GemmKernel {
  Kernel kernel;
  int64_t most_tiles = 0;  // 0: y is empty, nothing is launched
  int blocks = 1;          // on one multiprocessor
  /// A grid for a device with this many multiprocessors: blocks take tile after tile.
  Grid grid(int multiprocessors) const;
};

/// The kernel for a problem on devices of compute capability `sm` / 10: for 90 it may be one that runs nowhere else, by
/// the warpgroup tensor cores. Throws weft::Error if more groups than shared memory holds numbers for (4096).
GemmKernel gemm_kernel(const GroupedGemm& problem, const std::string& symbol, const GemmHook* hook = nullptr,
                       int sm = 80);

/// The problem of a grouped_dot with these attributes and operands (their addresses tell alignments), y contiguous.
GroupedGemm grouped_problem(const Attrs& attrs, std::span<const StridedView> in, const StridedView& out);

}  // namespace weft::cuda
