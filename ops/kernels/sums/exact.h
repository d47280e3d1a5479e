// Sums that do not depend on order: each term is rounded once to a multiple of 2^-149 (every f32 is one already) and
// split into digits, and the digits are added as integers. Any split of a sum, in any order, gives the same bits.
//
// A sum is kExactWidth int64: digits d[0..6] and a word of counts. Its value is the sum of d[j] 2^(40 j - 149). One
// term x has digits |d[j]| <= 2^39: from the top down, d[j] = x / 2^(40 j - 149) rounded to nearest even, and the rest
// goes to the next digit. The word counts terms that have no digits: NaN from bit 42 up, +inf and -inf in 21 bits each
// below; terms of magnitude 2^128 and more count as infinite. Digits have room for 2^23 terms. Sums of up to
// kExactPlain terms are not carried, so sums of parts equal the whole to the bit; longer sums are carried to |d| <=
// 2^39. In both cases, 1024 of them can be added by plain integer additions. Properties:
//   - the result is the exact sum of the rounded terms, rounded once to nearest even: N terms are off by N 2^-150;
//   - products of f64 are rounded to f64 first; products of f32, bf16 and f16 are exact before the rounding to the
//     grid;
//   - sums of magnitude 2^138 and more are infinite.
#pragma once
#include "ops/kernels/products/gemm.h"

namespace weft::kernels {

inline constexpr int kExactDigits = 7;
inline constexpr int kExactWidth = 8;
inline constexpr int kExactBits = 40;
inline constexpr int kExactLeast = -149;
inline constexpr int64_t kExactPlain = 1 << 14;

/// out[kept dims..., 8] (i64) = sums of x over the dims whose bits are set in dim_mask; any float but f8. `workspace`
/// has exact_copy_bytes(x).
void exact_sum(const StridedView& x, uint32_t dim_mask, const StridedView& out, void* workspace);
/// a[batch, m, k], b[batch, k, n], out[batch, m, n, 8]; `workspace` has exact_copy_bytes(a) + exact_copy_bytes(b).
void exact_gemm(const StridedView& a, const StridedView& b, const StridedView& out, void* workspace);
/// As grouped_gemm. Mode rows: a[T, K], b[E, K, N], out[T, N, 8]; mode contraction: a[T, K], b[T, N], out[E, K, N, 8].
void exact_grouped_gemm(GroupedMode mode, const StridedView& a, const StridedView& b, const StridedView& offsets,
                        const StridedView& out, void* workspace);
/// out[r, ..., 8] = sum of the rows src[i, ...] with index[i] = r; `workspace` has exact_copy_bytes(src).
void exact_index_add(const StridedView& index, const StridedView& src, const StridedView& out, void* workspace);
/// For dim 1 (other dims alike): out[i, index[i,j,k], k, 8] sums src[i,j,k]; index and src have the same shape.
/// `workspace` has exact_copy_bytes(src).
void exact_scatter_add(const StridedView& index, const StridedView& src, int dim, const StridedView& out,
                       void* workspace);
/// out[t, j, 8] = sum over d of y[rows[t k + j], d] x[t, d], for k choices j of each of T tokens; `workspace` has
/// exact_copy_bytes(y) + exact_copy_bytes(x).
void exact_row_dots(const StridedView& y, const StridedView& x, const StridedView& rows, const StridedView& out,
                    void* workspace);
/// out[...] = the value of limbs[..., 8], rounded once to out's dtype.
void exact_finish(const StridedView& limbs, const StridedView& out);

/// Bytes of a copy of `v` as f64.
int64_t exact_copy_bytes(const StridedView& v);
/// Carries: digits below the top become at most 2^39 in magnitude, counts become 0 or 1. The value does not change.
void exact_carry(int64_t* limbs);

}  // namespace weft::kernels
