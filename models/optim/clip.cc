#include "models/optim/clip.h"

#include "framework/dispatch/state/state.h"
#include "ops/composite/layers/activation.h"
#include "ops/core/creation.h"
#include "ops/core/pointwise.h"
#include "ops/core/reductions/reduce.h"

namespace weft::optim {

Tensor grad_norm(const std::vector<Tensor>& grads, std::source_location loc) {
  internal::LineScope here(loc);
  Tensor total;
  for (const Tensor& g : grads) {
    if (!g.defined()) continue;
    const Tensor squares = sum(square(g.dtype() == kFloat64 ? g : g.to(kFloat32)));
    total = total.defined() ? total + squares : squares;
  }
  return total.defined() ? sqrt(total) : zeros({});
}

// g factor, multiplied in f32 for 16-bit floats: a small factor is none in f16.
static Tensor times(const Tensor& g, const Tensor& factor) {
  const DType wide = itemsize(g.dtype()) < 4 ? kFloat32 : g.dtype();
  return (g.to(wide) * factor.to(wide)).to(g.dtype());
}

ClippedGrads clip_grad_norm(const Gradients& grads, double max_norm, std::source_location loc) {
  internal::LineScope here(loc);
  WEFT_CHECK(max_norm > 0, "clip_grad_norm: max_norm is ", max_norm, "; need a number above 0");
  ClippedGrads out{.grads = grads, .norm = grad_norm(grads)};
  const Tensor factor = clamp_max(max_norm / (out.norm + 1e-6), 1.0);
  for (Tensor& g : out.grads)
    if (g.defined()) g = times(g, factor);
  return out;
}

Gradients clip_grad_value(const Gradients& grads, double clip_value, std::source_location loc) {
  internal::LineScope here(loc);
  WEFT_CHECK(clip_value >= 0, "clip_grad_value: clip_value is ", clip_value, "; need a number >= 0");
  Gradients out = grads;
  for (Tensor& g : out)
    if (g.defined()) g = clamp(g, -clip_value, clip_value);
  return out;
}

}  // namespace weft::optim
