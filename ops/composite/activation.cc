#include "ops/composite/activation.h"

#include <numbers>

#include "ops/composite/precision.h"

namespace weft {

using internal::floating_of;
using internal::LineScope;
using internal::widened;

namespace {

// log(1 + e^x); x itself above `linear`. minimum() keeps e^x finite, and so the derivative of the unused branch.
Tensor log1p_exp(const Tensor& x, double linear) { return where(x > linear, x, log1p(exp(minimum(x, linear)))); }

}  // namespace

Tensor gelu(const Arg& x, std::string_view approximate) {
  LineScope line(x.line());
  const Tensor& t = floating_of(x, "gelu");
  WEFT_CHECK(approximate == "none" || approximate == "tanh", "gelu: approximate is '", approximate,
             "'; need \"none\" or \"tanh\"");
  const Tensor v = widened(t);
  if (approximate == "none") return (v * 0.5 * (erf(v * (1 / std::numbers::sqrt2)) + 1.0)).to(t.dtype());
  // (1 + tanh(u)) / 2 = sigmoid(2u): fewer ops, fewer values kept for the gradient, and no cancellation for x << 0.
  constexpr double kScale = 2 * std::numbers::sqrt2 * std::numbers::inv_sqrtpi;
  return (v * sigmoid(v * (square(v) * (kScale * 0.044715) + kScale))).to(t.dtype());
}

Tensor silu(const Arg& x) {
  LineScope line(x.line());
  const Tensor& t = floating_of(x, "silu");
  const Tensor v = widened(t);
  return (v * sigmoid(v)).to(t.dtype());
}

Tensor softplus(const Arg& x, double beta, double threshold) {
  LineScope line(x.line());
  const Tensor& t = floating_of(x, "softplus");
  WEFT_CHECK(beta > 0, "softplus: beta is ", beta, "; need a positive number");
  const Tensor v = widened(t);
  const Tensor y = beta == 1 ? log1p_exp(v, threshold) : log1p_exp(v * beta, threshold) / beta;
  return y.to(t.dtype());
}

Tensor logsigmoid(const Arg& x) {
  LineScope line(x.line());
  const Tensor& t = floating_of(x, "logsigmoid");
  // e^80 is finite in f32, and log(1 + e^-80) is negligible against 80 even in f64.
  return (-log1p_exp(-widened(t), 80)).to(t.dtype());
}

Tensor leaky_relu(const Arg& x, double negative_slope) {
  LineScope line(x.line());
  const Tensor& t = floating_of(x, "leaky_relu");
  return where(t > 0.0, t, t * negative_slope);
}

Tensor elu(const Arg& x, double alpha) {
  LineScope line(x.line());
  const Tensor& t = floating_of(x, "elu");
  const Tensor v = widened(t);
  return where(v > 0.0, v, expm1(minimum(v, 0.0)) * alpha).to(t.dtype());
}

Tensor clamp_min(const Arg& x, const Arg& lo) {
  LineScope line(x.line());
  return where(lt(x, lo), lo, x);
}

Tensor clamp_max(const Arg& x, const Arg& hi) {
  LineScope line(x.line());
  return where(gt(x, hi), hi, x);
}

Tensor clamp(const Arg& x, const Arg& lo, const Arg& hi) {
  LineScope line(x.line());
  return clamp_max(clamp_min(x, lo), hi);
}

}  // namespace weft
