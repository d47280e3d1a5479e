#include "ops/linalg/kernels.h"

#include <algorithm>
#include <cmath>
#include <eigen3/Eigen/Dense>
#include <eigen3/unsupported/Eigen/MatrixFunctions>
#include <limits>

#include "framework/base/thread_pool.h"

namespace weft::kernels {
namespace {

using Matrix = Eigen::MatrixXd;
using Vector = Eigen::VectorXd;

// The number of matrices.
int64_t batch_of(const StridedView& v) {
  int64_t n = 1;
  for (int d = 0; d < v.shape.size() - 2; ++d) n *= v.shape[d];
  return n;
}

// Element i of the batch, whose last `core` dims are one matrix, vector or number. All is computed in f64.
template <class T>
auto part(const StridedView& v, int core, int64_t index) {
  using Stride = Eigen::Stride<Eigen::Dynamic, Eigen::Dynamic>;
  int64_t offset = 0;
  const int r = v.shape.size();
  for (int d = r - core - 1; d >= 0; --d) {
    offset += index % v.shape[d] * v.strides[d];
    index /= v.shape[d];
  }
  return Eigen::Map<Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic>, Eigen::Unaligned, Stride>(
      v.as<T>() + offset, core > 0 ? v.shape[r - core] : 1, core > 1 ? v.shape[r - 1] : 1,
      Stride(core > 1 ? v.strides[r - 1] : 1, core > 0 ? v.strides[r - core] : 1));
}
Matrix read(const StridedView& v, int64_t i) {
  if (v.dtype == kFloat64) return part<double>(v, 2, i);
  return part<float>(v, 2, i).cast<double>();
}
void write(const StridedView& v, int core, int64_t i, const Matrix& m) {
  if (v.dtype == kFloat64)
    part<double>(v, core, i) = m;
  else
    part<float>(v, core, i) = m.cast<float>();
}
void write(const StridedView& v, int64_t i, const Matrix& m) { write(v, 2, i, m); }
void write(const StridedView& v, int64_t i, double number) { write(v, 0, i, Matrix::Constant(1, 1, number)); }

// "solve: matrix 3 of the batch is ".
std::string which(const char* op, const StridedView& a, int64_t i) {
  return a.shape.size() > 2 ? str_cat(op, ": matrix ", i, " of the batch ") : str_cat(op, ": the matrix ");
}

constexpr int64_t kColumns = 8;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

}  // namespace

void solve(const StridedView& a, const StridedView& b, const StridedView& x) {
  const int r = b.shape.size();
  const int64_t n = b.shape[r - 2], k = b.shape[r - 1], groups = (k + kColumns - 1) / kColumns;
  if (n == 0) return;
  parallel_for(batch_of(a), [&](int64_t i) {
    const Eigen::PartialPivLU<Matrix> lu(read(a, i));
    for (int64_t p = 0; p < n; ++p)
      WEFT_CHECK_AS(kFailedPrecondition, lu.matrixLU()(p, p) != 0, which("solve", a, i), "is singular: pivot ", p,
                    " of its LU decomposition is 0; need an invertible matrix, or pinv");
    const Matrix from = read(b, i);
    Matrix to(n, k);
    // Groups of one size, so that the bits of a column do not depend on how many there are.
    parallel_for(groups, [&](int64_t g) {
      const int64_t begin = g * kColumns, width = std::min(kColumns, k - begin);
      Matrix group = Matrix::Zero(n, kColumns);
      group.leftCols(width) = from.middleCols(begin, width);
      const Matrix solved = lu.solve(group);
      to.middleCols(begin, width) = solved.leftCols(width);
    });
    write(x, i, to);
  });
}

void determinant(const StridedView& a, const StridedView& det, const StridedView& sign, const StridedView& logabs) {
  parallel_for(batch_of(a), [&](int64_t i) {
    double d = 1, s = 1, l = 0;
    if (const Matrix m = read(a, i); m.size() > 0) {
      const Eigen::PartialPivLU<Matrix> lu(m);
      d = s = static_cast<double>(lu.permutationP().determinant());
      for (int64_t p = 0; p < m.rows(); ++p) {
        const double u = lu.matrixLU()(p, p);
        d *= u;
        s *= u > 0 ? 1 : u < 0 ? -1 : u;
        l += std::log(std::fabs(u));
      }
    }
    write(det, i, d);
    write(sign, i, s);
    write(logabs, i, l);
  });
}

void cofactors(const StridedView& a, const StridedView& out) {
  parallel_for(batch_of(a), [&](int64_t i) {
    const Matrix m = read(a, i);
    const int64_t n = m.rows();
    if (n == 0) return;
    if (!m.allFinite()) return write(out, i, Matrix::Constant(n, n, kNan));
    // rcond() is meaningless if a pivot is 0.
    if (const Eigen::PartialPivLU<Matrix> lu(m); lu.determinant() != 0 && lu.rcond() > 1e-6)
      return write(out, i, lu.determinant() * lu.inverse().transpose());
    // Nearly singular: the factors of U diag(s) V^T have no inverse to lose digits in.
    const Eigen::BDCSVD<Matrix> svd(m, Eigen::ComputeFullU | Eigen::ComputeFullV);
    const Vector& s = svd.singularValues();
    Vector others = Vector::Ones(n);
    for (int64_t p = 0; p < n; ++p)
      for (int64_t q = 0; q < n; ++q)
        if (q != p) others[p] *= s[q];
    const double turn = svd.matrixU().determinant() * svd.matrixV().determinant() < 0 ? -1 : 1;
    write(out, i, turn * (svd.matrixU() * others.asDiagonal() * svd.matrixV().transpose()));
  });
}

void cholesky(const StridedView& a, const StridedView& l) {
  parallel_for(batch_of(a), [&](int64_t i) {
    const Eigen::LLT<Matrix, Eigen::Lower> llt(read(a, i));
    const Matrix lower = llt.matrixL();
    WEFT_CHECK_AS(kFailedPrecondition, llt.info() == Eigen::Success && !lower.diagonal().hasNaN(),
                  which("cholesky", a, i), "is not positive definite; need one, for example x x^T + eps I");
    write(l, i, lower);
  });
}

void qr(const StridedView& a, const StridedView& q, const StridedView& r) {
  const int64_t k = r.shape[r.shape.size() - 2];
  if (k == 0) return;
  parallel_for(batch_of(a), [&](int64_t i) {
    const Eigen::HouseholderQR<Matrix> qr(read(a, i));
    write(q, i, qr.householderQ() * Matrix::Identity(qr.rows(), k));
    write(r, i, qr.matrixQR().topRows(k).triangularView<Eigen::Upper>());
  });
}

void eigh(const StridedView& a, const StridedView& w, const StridedView& v) {
  parallel_for(batch_of(a), [&](int64_t i) {
    const Matrix m = read(a, i).triangularView<Eigen::Lower>();
    if (m.size() == 0) return;
    WEFT_CHECK_AS(kFailedPrecondition, m.allFinite(), which("eigh", a, i),
                  "has NaN or infinite elements; need finite ones");
    const Eigen::SelfAdjointEigenSolver<Matrix> solver(m);
    WEFT_CHECK_AS(kFailedPrecondition, solver.info() == Eigen::Success, which("eigh", a, i),
                  "gives no eigenvalues after the largest number of iterations");
    write(w, 1, i, solver.eigenvalues());
    write(v, i, solver.eigenvectors());
  });
}

void svd(const StridedView& a, const StridedView& u, const StridedView& s, const StridedView& vh) {
  const int64_t columns = u.shape.back(), rows = vh.shape[vh.shape.size() - 2];
  parallel_for(batch_of(a), [&](int64_t i) {
    const Matrix m = read(a, i);
    if (m.size() == 0) {
      write(u, i, Matrix::Identity(m.rows(), columns));
      return write(vh, i, Matrix::Identity(rows, m.cols()));
    }
    WEFT_CHECK_AS(kFailedPrecondition, m.allFinite(), which("svd", a, i),
                  "has NaN or infinite elements; need finite ones");
    const Eigen::BDCSVD<Matrix> svd(m, (columns == m.rows() ? Eigen::ComputeFullU : Eigen::ComputeThinU) |
                                           (rows == m.cols() ? Eigen::ComputeFullV : Eigen::ComputeThinV));
    WEFT_CHECK_AS(kFailedPrecondition, svd.info() == Eigen::Success, which("svd", a, i),
                  "gives no singular values after the largest number of iterations");
    write(u, i, svd.matrixU());
    write(s, 1, i, svd.singularValues());
    write(vh, i, svd.matrixV().transpose());
  });
}

void matrix_exp(const StridedView& a, const StridedView& out) {
  parallel_for(batch_of(a), [&](int64_t i) {
    const Matrix m = read(a, i);
    if (m.size() == 0) return;
    write(out, i, m.allFinite() ? Matrix(m.exp()) : Matrix::Constant(m.rows(), m.cols(), kNan));
  });
}

}  // namespace weft::kernels
