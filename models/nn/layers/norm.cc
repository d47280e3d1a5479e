#include "models/nn/layers/norm.h"

#include "ops/composite/layers/norm.h"

namespace weft::nn {

Norm::Norm(NormKind kind, const Shape& normalized_shape, const NormOptions& options, std::source_location loc)
    : kind_(kind), normalized_shape_(normalized_shape), eps_(options.eps) {
  internal::LineScope line(loc);
  const char* const name = kind == kRms ? "RMSNorm" : "LayerNorm";
  bool positive = !normalized_shape.empty();
  for (int64_t n : normalized_shape) positive = positive && n > 0;
  WEFT_CHECK(positive, name, ": normalized_shape is ", normalized_shape, "; need one dim or more, of extents above 0");
  internal::check_eps(eps_, name);
  if (!options.elementwise_affine) return;
  weight = constant_parameter(normalized_shape, 1);
  register_parameter("weight", weight, /*full_precision=*/true);
  if (kind == kRms || !options.bias) return;
  bias = constant_parameter(normalized_shape, 0);
  register_parameter("bias", bias, /*full_precision=*/true);
}

Tensor Norm::operator()(const Arg& x) const {
  CallScope call(*this, x.line());
  const Tensor w = value_or_none(weight);
  const Shape& shape = w.defined() ? w.shape() : normalized_shape_;  // a user may have replaced the weight
  if (kind_ == kRms) return call.result(rms_norm(x, shape, w, eps_));
  return call.result(layer_norm(x, shape, w, value_or_none(bias), eps_));
}

}  // namespace weft::nn
