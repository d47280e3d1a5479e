// Matrices of batched operands, for kernels by Eigen. Included by the kernels only: Eigen takes long to compile, so
// each kind of decomposition has a file of its own.
#pragma once
#include <eigen3/Eigen/Core>
#include <limits>
#include <string>

#include "framework/base/thread_pool.h"
#include "ops/linalg/kernels.h"

namespace weft::kernels::linalg {

using Matrix = Eigen::MatrixXd;
using Vector = Eigen::VectorXd;

// The number of matrices.
inline int64_t batch_of(const StridedView& v) {
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
inline Matrix read(const StridedView& v, int64_t i) {
  if (v.dtype == kFloat64) return part<double>(v, 2, i);
  return part<float>(v, 2, i).cast<double>();
}
inline void write(const StridedView& v, int core, int64_t i, const Matrix& m) {
  if (v.dtype == kFloat64)
    part<double>(v, core, i) = m;
  else
    part<float>(v, core, i) = m.cast<float>();
}
inline void write(const StridedView& v, int64_t i, const Matrix& m) { write(v, 2, i, m); }
inline void write(const StridedView& v, int64_t i, double number) { write(v, 0, i, Matrix::Constant(1, 1, number)); }

// "solve: matrix 3 of the batch is ".
inline std::string which(const char* op, const StridedView& a, int64_t i) {
  return a.shape.size() > 2 ? str_cat(op, ": matrix ", i, " of the batch ") : str_cat(op, ": the matrix ");
}

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

}  // namespace weft::kernels::linalg
