// CPU kernels on strided views: plain functions without a registry. Each runs on the current thread pool, stays inline
// for small work, and gives the same bits for any thread count, layout and position of an element. Outputs are written
// completely and must not overlap an input, unless a function allows it. Bad arguments throw Error.
#pragma once
#include <cstdint>
#include <span>
#include <string_view>

#include "framework/tensor/view.h"

namespace weft::kernels {

// ---- elementwise ----

/// The elementwise ops of pointwise.inc.
enum class Pw : int {
#define WEFT_UNARY(name, ...) name,
#define WEFT_BINARY(name, ...) name,
#define WEFT_TEST(name, ...) name,
#define WEFT_COMPARE(name, ...) name,
#define WEFT_TERNARY(name, ...) name,
#include "ops/kernels/pointwise.inc"
  kCount
};
inline constexpr int kNumPw = static_cast<int>(Pw::kCount);

/// The dtypes that a row of pointwise.inc supports.
enum class PwTypes : uint8_t { FLOAT, NUMERIC, ANY, INT, BITS };
/// Properties of an elementwise op besides its expressions.
struct PwInfo {
  const char* name;
  uint8_t operands;  // 1, 2, or 3 for where
  PwTypes types;
  bool bool_result;  // tests and comparisons
};
const PwInfo& pointwise_info(Pw op);
/// True if the row supports operands of this dtype.
bool pointwise_takes(Pw op, DType dtype);

/// out[i] = op(in[0][i], ...). Operands have out's shape (any strides, 0 where broadcast) or are 0-d, and have one
/// dtype, except where's condition (bool). Tests and comparisons write bool, all others the operands' dtype. bf16 and
/// f16 are computed in f32 and rounded once. out may be exactly an operand (same address and strides). Integer
/// remainder and floor_divide by zero throw.
void pointwise(Pw op, std::span<const StridedView> in, const StridedView& out);

/// An elementwise op on n contiguous elements; bit k of `scalars` means that in[k] is one element, used for all. Runs
/// on the calling thread. Returns nonzero on an integer division by zero (out is then undefined).
using PwFn = int (*)(const void* const* in, void* out, int64_t n, uint32_t scalars);
/// The function for operands of `dtype` (for where: of a and b), or null if the row does not support the dtype.
PwFn pointwise_contiguous_fn(Pw op, DType dtype);
/// Throws the Error for a nonzero result of a PwFn.
[[noreturn]] void pointwise_fail(Pw op);

// ---- copies ----

/// out[i] = in[i] converted as in PyTorch (floats to integers by truncation, to bool by != 0); shapes are equal or in
/// is 0-d. All dtypes.
void cast_copy(const StridedView& in, const StridedView& out);
/// Sets every element of out to `value`, converted to out's dtype.
void fill(const StridedView& out, double value);
/// The same for integers beyond 2^53.
void fill_int(const StridedView& out, int64_t value);
/// out is 1-d: out[i] = start + i * step, computed in f64 and converted.
void iota(const StridedView& out, double start, double step);
/// The same in i64, where results wrap.
void iota_int(const StridedView& out, int64_t start, int64_t step);

// ---- reductions ----

enum class Rd : int { sum, max, min, prod, argmax, argmin };
/// Reduces the dims of `in` whose bits are set in dim_mask; out has the kept dims in order. Sum and prod accumulate
/// floats in f32 (f64 for f64) in the order of reduce_order.h, integers and bool in i64. out's dtype: in's or f32 for
/// floats; i64 for integer and bool sum and prod; in's for max and min; i64 for argmax and argmin (which take exactly
/// one dim; the first index wins). max and min propagate NaN; argmax and argmin return the first NaN. If there is no
/// element, sum gives 0, prod gives 1, and the others throw. `workspace` has reduce_workspace bytes (may be null if 0).
void reduce(Rd op, const StridedView& in, uint32_t dim_mask, const StridedView& out, void* workspace);
int64_t reduce_workspace(Rd op, DType in, const Shape& in_shape, uint32_t dim_mask);
/// The steps of reduce_order.h on n accumulators of type f32, f64 or i64 (sum, max, min, prod), on the calling thread:
/// combine sets a[i] = op(a[i], b[i]); fill_identity sets a[i] to the identity.
void combine(Rd op, DType acc, void* a, const void* b, int64_t n);
void fill_identity(Rd op, DType acc, void* a, int64_t n);

/// Running sum along dim (from the end if `reverse`), in the order of scan_order.h, in f32 (f64, i64); out's dtype as
/// for sum.
void cumsum(const StridedView& in, int dim, const StridedView& out, bool reverse);

// ---- indices: i64 or i32; an index out of range throws OutOfRange with value, position and limit ----

/// For dim 1 (other dims alike): out[i,j,k] = in[i, index[i,j,k], k]. index has out's shape, which may be smaller than
/// in's in the other dims (torch.gather).
void gather(const StridedView& in, const StridedView& index, int dim, const StridedView& out);
/// The slices of `in` along dim that the 1-d index selects: out has in's shape, with dim replaced by the index's
/// length.
void index_select(const StridedView& in, const StridedView& index, int dim, const StridedView& out);
/// out = in, then out[i, index[i,j,k], k] += src[i,j,k] in order of the flat position (torch.scatter_add). 16-bit
/// floats accumulate in f32. src has at least index's shape. out may be exactly in.
void scatter_add(const StridedView& in, const StridedView& index, const StridedView& src, int dim,
                 const StridedView& out);
/// out = in, then out[index[i], ...] += src[i, ...] in order of i along dim 0; f32 accumulation for bf16 and f16.
/// out may be exactly in.
void index_add(const StridedView& in, const StridedView& index, const StridedView& src, const StridedView& out);
/// out = in, then out[index[i], ...] = src[i, ...] in order of i along dim 0. out may be exactly in.
void index_copy(const StridedView& in, const StridedView& index, const StridedView& src, const StridedView& out);

// ---- order: stable; NaN is greater than all numbers; equal values keep the order of their indices ----

/// Sorts along dim; indices (i64) has the shape of in. An output with a null address is not written.
void sort(const StridedView& in, int dim, bool descending, const StridedView& values, const StridedView& indices);
/// The k largest (or smallest) along dim, best first.
void topk(const StridedView& in, int64_t k, int dim, bool largest, const StridedView& values,
          const StridedView& indices);

// ---- random ----

/// Philox4x32-10: out (i32) at flat position i is word (first_index + i) % 4 of the block keyed by seed with counter
/// {(first_index + i) / 4 in two words, op_id, low word of step}.
void random_bits(uint64_t seed, uint64_t step, uint32_t op_id, int64_t first_index, const StridedView& out);
/// Writes the words at positions base + sum of index times stride, for every index of `shape`, in row-major order, to
/// `out`. base: i64, 0-d or with 1 or the extent in each dim.
void random_bits_at(uint64_t seed, uint64_t step, uint32_t op_id, const StridedView& base, const Shape& shape,
                    const Shape& strides, const StridedView& out);

}  // namespace weft::kernels
