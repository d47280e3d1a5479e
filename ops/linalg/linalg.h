// Linear algebra with the names and meaning of torch.linalg. Operands are f32 or f64; the last two dims are matrices
// and the dims before them a batch. The results are differentiable; derivatives of decompositions need the same
// conditions as in PyTorch (distinct eigenvalues or singular values, full rank). They run on the CPU.
#pragma once
#include <optional>
#include <string_view>

#include "framework/dispatch/arg.h"
#include "ops/composite/math/matrix.h"
#include "ops/core/reductions/reduce.h"

namespace weft::linalg {

/// x with a x = b (left), or x a = b. b is [..., n, k], or [..., n] if b has one dim or a's shape without the last
/// extent; batch dims broadcast. Throws, eagerly or when a compiled step runs, if a matrix is singular.
Tensor solve(const Arg& a, const Arg& b, bool left = true);
/// The inverse of each matrix; throws for singular ones. solve(a, b) is faster and more accurate than inv(a) b.
Tensor inv(const Arg& a);
/// The determinant; its gradient is right for singular matrices too.
Tensor det(const Arg& a);
struct SlogDet {
  Tensor sign, logabsdet;  // -1, 0 or 1, and log |det|
};
SlogDet slogdet(const Arg& a);

/// The lower triangular l with l l^T = a for symmetric positive definite a, or the upper one. Reads the lower triangle,
/// or for `upper` the upper one; throws if a matrix is not positive definite.
Tensor cholesky(const Arg& a, bool upper = false);
/// The x with a x = b (left: b [..., n, k]) or x a = b for a triangular a, of which the other triangle is not read, nor
/// the diagonal if it is unitriangular, all ones. Throws if an element of the diagonal is 0.
Tensor solve_triangular(const Arg& a, const Arg& b, bool upper, bool left = true, bool unitriangular = false);
struct LU {
  Tensor P, L, U;
};
/// a = P L U for [..., m, n] by partial pivoting: P [..., m, m] is a permutation, L [..., m, k] has ones on its
/// diagonal, U [..., k, n], k = min(m, n).
LU lu(const Arg& a);
struct LUFactor {
  Tensor LU, pivots;
};
/// L below the diagonal and U on and above it, in one matrix [..., m, n]; row i was exchanged with row pivots[i] - 1,
/// in order: i32 [..., k].
LUFactor lu_factor(const Arg& a);
/// The x with a x = b for b [..., n, k], or x a = b unless left, of a matrix a whose lu_factor this is; `adjoint`: of
/// the transpose of a.
Tensor lu_solve(const Arg& LU, const Arg& pivots, const Arg& b, bool left = true, bool adjoint = false);
using weft::vecdot;
/// The condition number |a| |a^-1| by matrix_norm with ord 2 or -2 of any matrices, or 1, -1, inf, -inf, "fro" or "nuc"
/// of invertible ones.
Tensor cond(const Arg& a, double ord = 2);
Tensor cond(const Arg& a, std::string_view ord);

struct QR {
  Tensor Q, R;
};
/// The reduced decomposition of [..., m, n]: Q [..., m, k] with orthonormal columns, R [..., k, n], k = min(m, n).
QR qr(const Arg& a);
struct Eigh {
  Tensor eigenvalues, eigenvectors;  // ascending [..., n]; in columns [..., n, n]
};
/// The eigenvalues and eigenvectors of symmetric matrices. Reads the lower triangle, or the upper triangle if uplo is
/// "U". Signs of vectors are arbitrary.
Eigh eigh(const Arg& a, std::string_view uplo = "L");
Tensor eigvalsh(const Arg& a, std::string_view uplo = "L");
struct SVD {
  Tensor U, S, Vh;  // S is descending
};
/// a = U diag(S) Vh for [..., m, n]. Full: U [..., m, m], Vh [..., n, n], where gradients of the columns beyond
/// min(m, n) are ignored; otherwise U [..., m, k], Vh [..., k, n]. Signs of vectors are arbitrary.
SVD svd(const Arg& a, bool full_matrices = true);
Tensor svdvals(const Arg& a);

/// The pseudo-inverse [..., n, m]. Singular values up to rtol times the largest count as 0; rtol < 0: eps max(m, n).
Tensor pinv(const Arg& a, double rtol = -1);
/// The x of least norm that minimises |a x - b| for a [..., m, n] and b [..., m, k], by the pseudo-inverse; rank
/// deficient matrices are allowed (PyTorch: the solution only).
Tensor lstsq(const Arg& a, const Arg& b, double rcond = -1);
/// The number of singular values above rtol times the largest, i64.
Tensor matrix_rank(const Arg& a, double rtol = -1);

/// ord "fro" (Frobenius) or "nuc" (sum of singular values) over two dims. Norms without singular values take 16-bit
/// floats, too.
Tensor matrix_norm(const Arg& a, std::string_view ord = "fro", const Dims& dims = {-2, -1}, bool keepdim = false);
/// ord 1 or -1: the largest or smallest column sum of |a|; inf or -inf: row sum; 2 or -2: singular value.
Tensor matrix_norm(const Arg& a, double ord, const Dims& dims = {-2, -1}, bool keepdim = false);
/// a a ... a, n times; n < 0: of the inverse.
Tensor matrix_power(const Arg& a, int64_t n);
/// e^a = I + a + a a / 2 + ...
Tensor matrix_exp(const Arg& a);

}  // namespace weft::linalg

namespace weft {

/// torch.cholesky_solve: the x with a x = b for a = l l^T and the cholesky l of a, or its transpose if `upper`.
Tensor cholesky_solve(const Arg& b, const Arg& l, bool upper = false);
using linalg::cholesky;
using linalg::det;
using linalg::matrix_exp;
using linalg::matrix_power;
using linalg::qr;
using linalg::slogdet;
using linalg::solve;
inline Tensor inverse(const Arg& a) { return linalg::inv(a); }
inline Tensor pinverse(const Arg& a) { return linalg::pinv(a); }
struct SVD {
  Tensor U, S, V;
};
/// torch.svd: a = U diag(S) V^T; `some`: U [..., m, k] and V [..., n, k], otherwise square. (linalg::svd returns V^T.)
SVD svd(const Arg& a, bool some = true);

}  // namespace weft
