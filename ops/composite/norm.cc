#include "ops/composite/norm.h"

#include <cmath>

#include "ops/composite/precision.h"
#include "ops/core/reduce.h"

namespace weft {

using internal::floating_of;
using internal::LineScope;
using internal::widened;

namespace {

// The dims to normalise over; throws if the shapes do not fit.
Shape last_dims(const Tensor& x, const Shape& normalized_shape, const char* op) {
  const int n = normalized_shape.size(), rank = x.dim();
  bool fits = n >= 1 && n <= rank;
  for (int i = 0; fits && i < n; ++i) fits = x.shape()[rank - n + i] == normalized_shape[i];
  WEFT_CHECK(fits, op, ": x has shape ", x.shape(), "; need one that ends in normalized_shape ", normalized_shape);
  Shape dims;
  for (int i = rank - n; i < rank; ++i) dims.push_back(i);
  return dims;
}

// Scale or shift in the dtype of the statistics; an undefined one stays undefined.
Tensor affine_of(const Arg& a, const Shape& normalized_shape, DType dtype, const char* op, const char* name) {
  if (!a.is_tensor() || !a.tensor().defined()) return {};
  const Tensor& t = floating_of(a, op);
  WEFT_CHECK(t.shape() == normalized_shape, op, ": ", name, " has shape ", t.shape(), "; need normalized_shape ",
             normalized_shape);
  return t.to(dtype);
}

double epsilon(DType t) {
  switch (t) {
    case kFloat64:
      return 0x1p-52;
    case kBFloat16:
      return 0x1p-7;
    case kFloat16:
      return 0x1p-10;
    default:
      return 0x1p-23;
  }
}

}  // namespace

Tensor layer_norm(const Arg& x, const Shape& normalized_shape, const Arg& weight, const Arg& bias, double eps) {
  LineScope line(x.line());
  const Tensor& t = floating_of(x, "layer_norm");
  const Shape dims = last_dims(t, normalized_shape, "layer_norm");
  const Tensor v = widened(t);
  const Tensor w = affine_of(weight, normalized_shape, v.dtype(), "layer_norm", "weight");
  const Tensor b = affine_of(bias, normalized_shape, v.dtype(), "layer_norm", "bias");
  const Tensor centred = v - mean(v, dims, true);
  Tensor y = centred * rsqrt(mean(square(centred), dims, true) + eps);
  if (w.defined()) y = y * w;
  if (b.defined()) y = y + b;
  return y.to(t.dtype());
}

Tensor rms_norm(const Arg& x, const Shape& normalized_shape, const Arg& weight, double eps) {
  LineScope line(x.line());
  const Tensor& t = floating_of(x, "rms_norm");
  const Shape dims = last_dims(t, normalized_shape, "rms_norm");
  const Tensor v = widened(t);
  const Tensor w = affine_of(weight, normalized_shape, v.dtype(), "rms_norm", "weight");
  Tensor y = v * rsqrt(mean(square(v), dims, true) + (eps < 0 ? epsilon(t.dtype()) : eps));
  if (w.defined()) y = y * w;
  return y.to(t.dtype());
}

Tensor rms_norm(const Arg& x, const Arg& weight, double eps) {
  return rms_norm(x, internal::tensor_of(weight, "rms_norm").shape(), weight, eps);
}

}  // namespace weft
