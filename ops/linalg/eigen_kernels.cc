#include <algorithm>
#include <cmath>
#include <eigen3/Eigen/Eigenvalues>
#include <eigen3/unsupported/Eigen/MatrixFunctions>

#include "ops/linalg/matrices.h"

namespace weft::kernels {

using namespace linalg;  // NOLINT(google-build-using-namespace)

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

void matrix_exp(const StridedView& a, const StridedView& out) {
  parallel_for(batch_of(a), [&](int64_t i) {
    const Matrix m = read(a, i);
    if (m.size() == 0) return;
    write(out, i, m.allFinite() ? Matrix(m.exp()) : Matrix::Constant(m.rows(), m.cols(), kNan));
  });
}

}  // namespace weft::kernels
