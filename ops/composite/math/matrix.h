// Small linear algebra: diagonals, and products of vectors, matrices and tensors with their sums. Products of 16-bit
// floats are summed in f32 and rounded once, after alpha, beta and the addition.
#pragma once
#include "framework/dispatch/arg.h"

namespace weft {

/// The elements of dims dim1 and dim2 with index2 - index1 = offset, as a new last dim.
Tensor diagonal(const Arg& x, int64_t offset = 0, int64_t dim1 = 0, int64_t dim2 = 1);
/// The inverse: the last dim of x as such a diagonal of new dims dim1 and dim2 of the result; zeros elsewhere.
Tensor diag_embed(const Arg& x, int64_t offset = 0, int64_t dim1 = -2, int64_t dim2 = -1);
/// A vector as the diagonal of a matrix; the diagonal of a matrix as a vector.
Tensor diag(const Arg& x, int64_t diagonal = 0);
/// The sum of a matrix's diagonal.
Tensor trace(const Arg& x);

/// The sum of the products of two vectors of equal length; vdot is the same for real numbers.
Tensor dot(const Arg& a, const Arg& b);
Tensor vdot(const Arg& a, const Arg& b);
/// The sum of the products along dim of a and b, which broadcast: floats.
Tensor vecdot(const Arg& a, const Arg& b, int64_t dim = -1);
/// Products of the last dims: [..., N] and [..., N] give [a's ..., b's ...].
Tensor inner(const Arg& a, const Arg& b);
/// a[i] b[j] for vectors.
Tensor outer(const Arg& a, const Arg& b);
/// [N, M] x [M].
Tensor mv(const Arg& a, const Arg& v);
/// The product over a's last `dims` dims and b's first, or over the paired dims of two lists.
Tensor tensordot(const Arg& a, const Arg& b, int64_t dims = 2);
Tensor tensordot(const Arg& a, const Arg& b, const Shape& a_dims, const Shape& b_dims);
/// a x b of three-dimensional vectors along dim; without dim, along the first dim of extent 3.
Tensor cross(const Arg& a, const Arg& b);
Tensor cross(const Arg& a, const Arg& b, int64_t dim);
/// The Kronecker product: [a1 b1, a2 b2, ...], for at most 4 dims.
Tensor kron(const Arg& a, const Arg& b);

/// beta input + alpha a b, for matrices a and b (addmm), batches of matrices (baddbmm), or a matrix and a vector
/// (addmv). input broadcasts to the product; beta = 0 ignores its values. Integers need whole beta and alpha.
Tensor addmm(const Arg& input, const Arg& a, const Arg& b, const Arg& beta = 1, const Arg& alpha = 1);
Tensor baddbmm(const Arg& input, const Arg& a, const Arg& b, const Arg& beta = 1, const Arg& alpha = 1);
Tensor addmv(const Arg& input, const Arg& a, const Arg& v, const Arg& beta = 1, const Arg& alpha = 1);

}  // namespace weft
