#include <algorithm>
#include <cmath>
#include <eigen3/Eigen/LU>
#include <eigen3/Eigen/SVD>

#include "ops/linalg/matrices.h"

namespace weft::kernels {

using namespace linalg;  // NOLINT(google-build-using-namespace)

void cofactors(const StridedView& a, const StridedView& out) {
  parallel_for(batch_of(a), [&](int64_t i) {
    const Matrix m = read(a, i);
    const int64_t n = m.rows();
    if (n == 0) return;
    if (!m.allFinite()) return write(out, i, Matrix::Constant(n, n, kNan));
    // rcond() is meaningless if a pivot is 0.
    if (const Eigen::PartialPivLU<Matrix> lu(m); lu.determinant() != 0 && lu.rcond() > 1e-6)
      return write(out, i, lu.determinant() * lu.inverse().transpose());
    // The matrix is nearly singular. The factors U diag(s) V^T need no inverse, which would lose digits.
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

}  // namespace weft::kernels
