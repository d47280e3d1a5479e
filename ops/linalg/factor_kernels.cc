#include <algorithm>
#include <cmath>
#include <eigen3/Eigen/Cholesky>
#include <eigen3/Eigen/LU>
#include <eigen3/Eigen/QR>

#include "ops/linalg/matrices.h"

namespace weft::kernels {

using namespace linalg;  // NOLINT(google-build-using-namespace)

// The columns that are solved together.
constexpr int64_t kColumns = 8;

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
    // Groups have one size, so that the bits of a column do not depend on the number of columns.
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

void lu(const StridedView& a, const StridedView& lu, const StridedView& pivots, const StridedView& rows) {
  parallel_for(batch_of(a), [&](int64_t i) {
    Matrix m = read(a, i);
    const int64_t k = std::min(m.rows(), m.cols());
    Eigen::Transpositions<Eigen::Dynamic> swaps(k);
    int count = 0;
    if (k > 0) {
      auto square = m.leftCols(k);  // Eigen's factorisation leaves further columns unfinished
      Eigen::internal::partial_lu_inplace(square, swaps, count);
    }
    auto right = m.rightCols(m.cols() - k);
    auto to = part<int32_t>(pivots, 1, i);
    auto order = part<int64_t>(rows, 1, i);
    for (int64_t r = 0; r < m.rows(); ++r) order(r, 0) = r;
    for (int64_t r = 0; r < k; ++r) {
      to(r, 0) = swaps.coeff(r) + 1;
      std::swap(order(r, 0), order(swaps.coeff(r), 0));
      right.row(r).swap(right.row(swaps.coeff(r)));
    }
    if (right.size() > 0) m.leftCols(k).triangularView<Eigen::UnitLower>().solveInPlace(right);
    write(lu, i, m);
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

}  // namespace weft::kernels
