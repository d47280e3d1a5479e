// CPU kernels of the decompositions, by Eigen: for f32 and f64, computed in f64. The last two dims are matrices, the
// dims before them a batch; views may have any strides. Bits do not depend on the number of threads. A matrix that has
// no result throws, with its position in the batch.
#pragma once
#include "framework/tensor/view.h"

namespace weft::kernels {

/// x = a^-1 b, for a[..., n, n] and b[..., n, k], by LU with partial pivoting. The bits of a column do not depend on
/// the other columns. Throws for a singular matrix.
void solve(const StridedView& a, const StridedView& b, const StridedView& x);
/// p l u = a[..., m, n] by partial pivoting: l below the diagonal of lu and u on and above it; row k was exchanged with
/// row pivots[k] - 1, i32 [..., min(m, n)], and rows[k], i64 [..., m], is the row of a that is row k of l u.
void lu(const StridedView& a, const StridedView& lu, const StridedView& pivots, const StridedView& rows);
/// det, its sign (0 for a singular matrix) and log |det| of a[..., n, n].
void determinant(const StridedView& a, const StridedView& det, const StridedView& sign, const StridedView& logabs);
/// The derivative of the determinant by each element of a[..., n, n]; also of singular matrices.
void cofactors(const StridedView& a, const StridedView& out);
/// l l^T = a, l lower triangular; reads the lower triangle. Throws unless a is positive definite.
void cholesky(const StridedView& a, const StridedView& l);
/// q r = a[..., m, n], with q[..., m, k] and r[..., k, n], k = min(m, n), by Householder reflections as LAPACK.
void qr(const StridedView& a, const StridedView& q, const StridedView& r);
/// a v = v diag(w) for symmetric a, w ascending; reads the lower triangle.
void eigh(const StridedView& a, const StridedView& w, const StridedView& v);
/// u diag(s) vh = a[..., m, n], s descending. u is [m, m] or [m, k], vh [n, n] or [k, n], k = min(m, n).
void svd(const StridedView& a, const StridedView& u, const StridedView& s, const StridedView& vh);
/// e^a, by scaling and squaring with Pade approximants (Higham 2005).
void matrix_exp(const StridedView& a, const StridedView& out);

}  // namespace weft::kernels
