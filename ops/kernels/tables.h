// The function tables that each instruction set exports, and the selection among them. Keep this small: the
// per-instruction-set sources include it, and it must not bring inline code of others into them.
#pragma once
#include <cstdint>

namespace weft::kernels {

using PwFn = int (*)(const void* const* in, void* out, int64_t n, uint32_t scalars);

/// The dtypes that the kernels compute on: the first ten of DType (no f8).
inline constexpr int kNumComputeDTypes = 10;
/// Functions of one row of pointwise.inc by dtype; null if the row does not support it.
struct PwRow {
  PwFn by_dtype[kNumComputeDTypes];
};

/// Reductions of one op and element type in the order of reduce_order.h. Accumulators are float, double or int64.
struct ReduceFns {
  /// out[r] = reduction of the n contiguous elements of row r; rows are `stride` bytes apart.
  void (*rows)(const void* x, int64_t stride, int64_t rows, int64_t n, void* out);
  /// One block: out[c] = column c of the n <= kReduceBlock rows at base + offsets[i] (bytes).
  void (*columns)(const void* base, const int64_t* offsets, int64_t n, int64_t cols, void* out);
  /// a[i] = op(a[i], b[i]) on accumulators.
  void (*combine)(void* a, const void* b, int64_t n);
};
/// The first best value and its index; `first` is the index of x[0]; an index below 0 means no element yet.
struct ArgFns {
  void (*row)(const void* x, int64_t n, int64_t first, void* best, int64_t* index);
  void (*columns)(const void* x, int64_t cols, int64_t row, void* best, int64_t* index);
};
/// out[r, j] (rows ld apart) = sum over k of x[r, k] w(k, j) in f32, for up to kMostFewRows rows of x, which are
/// contiguous and x_stride apart. A row's bits do not depend on the other rows.
using GemvFn = void (*)(const void* x, int64_t x_stride, int64_t rows, const void* w, int64_t w_stride, int64_t k,
                        int64_t cols, float* out, int64_t ld);

#define WEFT_DECLARE_TABLES(isa)                                                                    \
  namespace isa {                                                                                   \
  const PwRow* pointwise_rows();                                                                    \
  const PwRow* cast_rows(); /* index: source dtype, then target dtype */                            \
  /* op: sum, max, min, prod; type: f32, f64, bf16, f16, i64 */                                     \
  const ReduceFns& reduce_fns(int op, int type);                                                    \
  const ArgFns& arg_fns(bool largest, int accumulator); /* f32, f64, i64 */                         \
  /* w contiguous along j (stride between k) or along k (stride between j); type: f32, bf16, f16 */ \
  GemvFn gemv_fn(bool w_rows_contiguous, int type);                                                 \
  }
WEFT_DECLARE_TABLES(baseline)
WEFT_DECLARE_TABLES(avx2)
WEFT_DECLARE_TABLES(avx512)

}  // namespace weft::kernels

/// The function `name` of the selected instruction set's namespace, e.g. WEFT_SELECT(pointwise_rows)().
#define WEFT_SELECT(name)                                                         \
  (::weft::selected_isa() == ::weft::Isa::avx512 ? &::weft::kernels::avx512::name \
   : ::weft::selected_isa() == ::weft::Isa::avx2 ? &::weft::kernels::avx2::name   \
                                                 : &::weft::kernels::baseline::name)
