// Shared by the files of distributions: parameters and their checks.
#pragma once
#include "ops/composite/precision.h"
#include "ops/core/creation.h"
#include "ops/core/indexing/view.h"
#include "ops/core/reductions/reduce.h"

namespace weft::internal {

/// A parameter of the distribution `op`: a floating-point tensor, or a number as f32.
inline Tensor parameter_of(const Arg& x, const char* op) {
  if (!x.is_tensor()) return full({}, x.number());
  return floating_of(x, op);
}

/// Throws if a value that can be read now is not `ok`.
inline void check_values(const Tensor& ok, const char* what) {
  if (ok.is_traced() || ok.device().type != DeviceType::kCpu) return;
  NoGrad guard;
  WEFT_CHECK(all(ok).item<bool>(), what);
}

/// Gives both parameters their common shape and dtype.
inline void broadcast_parameters(Tensor& a, Tensor& b, const char* op) {
  const Shape shape = broadcast_shapes(a.shape(), b.shape(), op);
  const DType type = a.dim() == 0 && b.dim() > 0   ? b.dtype()
                     : b.dim() == 0 && a.dim() > 0 ? a.dtype()
                                                   : promote(a.dtype(), b.dtype());
  a = broadcast_to(cast(a, type), shape);
  b = broadcast_to(cast(b, type), shape);
}

/// [shape..., the shape of `like`...].
inline Shape extended(const Shape& shape, const Tensor& like) {
  Shape s = shape;
  for (int64_t n : like.shape()) s.push_back(n);
  return s;
}
inline TensorOptions options_like(const Tensor& t) { return {.dtype = t.dtype(), .device = t.device()}; }

/// d y / d a of y = log x, for a draw x from Gamma(a, 1) whose probability of smaller draws stays; both f64, of equal
/// shape.
Tensor slope_of_log_gamma(const Tensor& y, const Tensor& a);

}  // namespace weft::internal
