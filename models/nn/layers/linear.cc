#include "models/nn/layers/linear.h"

#include <cmath>

#include "ops/core/products/dot.h"

namespace weft::nn {

Linear::Linear(int64_t in, int64_t out, const LinearOptions& options, std::source_location loc) {
  internal::LineScope line(loc);
  WEFT_CHECK(in > 0 && out > 0, "Linear: need positive sizes; got ", in, " -> ", out);
  double bound = 1 / ::std::sqrt(static_cast<double>(in));
  weight = options.std > 0 ? normal_parameter({out, in}, options.std) : uniform_parameter({out, in}, bound);
  register_parameter("weight", weight, options.full_precision);
  if (!options.bias) return;
  bias = options.std > 0 ? constant_parameter({out}, 0) : uniform_parameter({out}, bound);
  register_parameter("bias", bias, options.full_precision);
}

Tensor Linear::operator()(const Arg& x) const {
  CallScope call(*this, x.line());
  return call.result(linear(x, weight, value_or_none(bias)));
}

}  // namespace weft::nn
