#include "models/nn/layers/bilinear.h"

#include <cmath>

#include "ops/core/creation.h"
#include "ops/core/indexing/view.h"
#include "ops/core/pointwise.h"
#include "ops/core/products/dot.h"
#include "ops/core/promotion.h"

namespace weft::nn {

Bilinear::Bilinear(int64_t in1, int64_t in2, int64_t out, const BilinearOptions& options, std::source_location loc) {
  internal::LineScope line(loc);
  WEFT_CHECK(in1 > 0 && in2 > 0 && out > 0, "Bilinear: need positive sizes; got ", in1, " x ", in2, " -> ", out);
  const double bound = 1 / ::std::sqrt(static_cast<double>(in1));
  weight = uniform_parameter({out, in1, in2}, bound);
  register_parameter("weight", weight);
  if (!options.bias) return;
  bias = uniform_parameter({out}, bound);
  register_parameter("bias", bias);
}

Tensor Bilinear::operator()(const Arg& x1, const Arg& x2) const {
  CallScope call(*this, x1.line());
  // This product is not in torch.autocast's list: the widest dtype of its operands counts.
  const bool widest = internal::thread_state.autocast.has_value();
  const Autocast off(std::nullopt);
  const Tensor first = internal::tensor_of(x1, "Bilinear"), &b = internal::tensor_of(x2, "Bilinear");
  const Tensor a = widest ? first.to(promote(first.dtype(), weight.dtype())) : first;
  const int64_t in1 = weight.shape()[1], in2 = weight.shape()[2];
  bool fits = a.dim() > 0 && a.dim() == b.dim() && a.size(-1) == in1 && b.size(-1) == in2;
  Shape rows = a.shape();
  if (fits) {
    Shape others = b.shape();
    rows.pop_back();
    others.pop_back();
    fits = rows == others;
  }
  WEFT_CHECK(fits && is_floating(a.dtype()) && is_floating(b.dtype()), "Bilinear: got ", a.type(), " and ", b.type(),
             "; need floats [..., ", in1, "] and [..., ", in2, "] with equal dims before the last");
  WEFT_CHECK(b.dtype() != kFloat64 || a.dtype() == kFloat64, "Bilinear: got ", a.type(), " and ", b.type(),
             "; need one dtype: x1.to(kFloat64)");
  const int64_t n = rows.numel();
  const auto own = [&](const Tensor& p) { return p.to(internal::dtype_with(p, a, "Bilinear")); };
  Tensor y = einsum("ri,oij,rj->ro",
                    std::vector<Tensor>{reshape(a, {n, in1}), own(weight.value()), reshape(b, {n, in2}).to(a.dtype())});
  rows.push_back(weight.shape()[0]);
  y = reshape(y, rows);
  return call.result(bias.defined() ? y + own(bias.value()) : y);
}

}  // namespace weft::nn
