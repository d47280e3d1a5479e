#include "models/nn/layers/norm.h"

#include "ops/composite/layers/norm.h"

namespace weft::nn {

Norm::Norm(NormKind kind, int64_t dim, bool with_bias, double eps, std::source_location loc) : kind_(kind), eps_(eps) {
  internal::LineScope line(loc);
  const char* const name = kind == kRms ? "RMSNorm" : "LayerNorm";
  WEFT_CHECK(dim > 0, name, ": dim is ", dim, "; need 1 or more");
  internal::check_eps(eps, name);
  weight = constant_parameter({dim}, 1);
  register_parameter("weight", weight, /*full_precision=*/true);
  if (!with_bias) return;
  bias = constant_parameter({dim}, 0);
  register_parameter("bias", bias, /*full_precision=*/true);
}

Tensor Norm::operator()(const Arg& x) const {
  CallScope call(*this, x.line());
  if (kind_ == kRms) return rms_norm(x, weight.shape(), weight, eps_);
  return layer_norm(x, weight.shape(), weight, value_or_none(bias), eps_);
}

}  // namespace weft::nn
