#include "ops/composite/layers/activation.h"

#include <numbers>

#include "framework/autodiff/grad.h"
#include "framework/base/called.h"
#include "ops/composite/math/derivative.h"
#include "ops/composite/precision.h"
#include "ops/core/indexing/view.h"

namespace weft {

using namespace internal;

namespace {

// x up to `limit`, for a branch that is not used above it but must be finite there, with its derivative.
// minimum() would halve the derivative at the limit.
Tensor up_to(const Tensor& x, double limit) { return where(gt(x, limit), limit, x); }

// log(1 + e^x); x itself above `linear`.
Tensor log1p_exp(const Tensor& x, double linear) { return where(x > linear, x, log1p(exp(up_to(x, linear)))); }

// f(x) in f32 or f64, in x's dtype.
template <class F>
Tensor activated(const Arg& x, const char* op, const F& f) {
  const Called name(op);
  const FloatingOperand t(x, op);
  return f(widened(t)).to(t.dtype());
}

// x limited to [lo, hi], with gradient 0 at the ends.
Tensor limited(const Tensor& x, double lo, double hi) { return where(le(x, lo), lo, where(ge(x, hi), hi, x)); }

// x limited to [lo, hi], tensors of its type, with PyTorch's gradient: x shares it equally with a bound that it equals,
// but has all of it where the bounds are equal too.
Tensor between(const Tensor& x, const Tensor& lo, const Tensor& hi) {
  const auto value = [](std::span<const Tensor> in) { return std::vector{minimum(maximum(in[0], in[1]), in[2])}; };
  const auto backward = [](std::span<const Tensor> in, std::span<const Tensor>, std::span<const Tensor> grad) {
    const Tensor &g = grad[0], half = g * 0.5, apart = lt(in[1], in[2]);
    const Tensor below = lt(in[0], in[1]) & le(in[1], in[2]), above = gt(in[0], in[2]) | gt(in[1], in[2]);
    const Tensor at_lo = eq(in[0], in[1]) & apart, at_hi = eq(in[0], in[2]) & apart;
    return std::vector{where(below | above, 0.0, where(at_lo | at_hi, half, g)),
                       where(below, g, where(at_lo, half, 0.0)), where(above, g, where(at_hi, half, 0.0))};
  };
  return custom_grad(value, backward)(x, lo, hi);
}

}  // namespace

Tensor gelu(const Arg& arg, std::string_view approximate) {
  LineScope line(arg.line());
  WEFT_CHECK(approximate == "none" || approximate == "tanh", "gelu: approximate is '", approximate,
             "'; need \"none\" or \"tanh\"");
  return activated(arg, "gelu", [=](const Tensor& x) {
    if (approximate == "none") return x * 0.5 * (erf(x * (1 / std::numbers::sqrt2)) + 1.0);
    // (1 + tanh(u)) / 2 = sigmoid(2u): fewer ops, fewer values kept for the gradient, and no cancellation for x << 0.
    constexpr double kScale = 2 * std::numbers::sqrt2 * std::numbers::inv_sqrtpi;
    return x * sigmoid(x * (square(x) * (kScale * 0.044715) + kScale));
  });
}

Tensor silu(const Arg& arg) {
  return activated(arg, "silu", [](const Tensor& x) { return x * sigmoid(x); });
}

Tensor softplus(const Arg& arg, double beta, double threshold) {
  const F32Operand operand(arg, "softplus");
  return activated(operand, "softplus", [=](const Tensor& x) {
    WEFT_CHECK(beta > 0, "softplus: beta is ", beta, "; need a positive number");
    return beta == 1 ? log1p_exp(x, threshold) : log1p_exp(x * beta, threshold) / beta;
  });
}

Tensor logsigmoid(const Arg& arg) {
  // e^80 is finite in f32, and log(1 + e^-80) is negligible against 80 even in f64.
  return activated(arg, "logsigmoid", [](const Tensor& x) { return -log1p_exp(-x, 80); });
}

Tensor leaky_relu(const Arg& x, double negative_slope) {
  const FloatingOperand t(x, "leaky_relu");
  return where(t > 0.0, t, t * negative_slope);
}

Tensor elu(const Arg& arg, double alpha) {
  return activated(arg, "elu", [=](const Tensor& x) { return where(x > 0.0, x, expm1(up_to(x, 0)) * alpha); });
}

Tensor selu(const Arg& arg) {
  constexpr double kAlpha = 1.6732632423543772848, kScale = 1.0507009873554804934;
  return activated(arg, "selu", [](const Tensor& x) {
    return where(gt(x, 0.0), x * kScale, expm1(up_to(x, 0)) * (kAlpha * kScale));
  });
}

Tensor celu(const Arg& arg, double alpha) {
  return activated(arg, "celu", [=](const Tensor& x) {
    WEFT_CHECK(alpha != 0, "celu: alpha is 0; need another number");
    return where(gt(x, 0.0), x, expm1(up_to(x, 0) / alpha) * alpha);
  });
}

Tensor glu(const Arg& arg, int64_t dim) {
  return activated(arg, "glu", [=](const Tensor& x) {
    WEFT_CHECK(x.dim() > 0, "glu: got a scalar; need a dim to halve");
    const int d = normalize_dim(dim, x.dim(), "glu");
    const int64_t n = x.shape()[d];
    WEFT_CHECK(n % 2 == 0, "glu: dim ", d, " of ", x.shape(), " has extent ", n, "; need an even one");
    return slice(x, d, 0, n / 2) * sigmoid(slice(x, d, n / 2, n));
  });
}

Tensor mish(const Arg& arg) {
  return activated(arg, "mish", [](const Tensor& x) {
    // tanh(log(1 + e^x)) = n / (n + 2) with n = e^x (e^x + 2); for x > 0 numerator and denominator times e^-2x.
    const Tensor above = gt(x, 0.0), a = exp(where(above, -x, x));
    const Tensor n = where(above, a * 2.0 + 1.0, a * (a + 2.0));
    return x * (n / (n + where(above, square(a), 1.0) * 2.0));
  });
}

Tensor swish(const Arg& x) { return silu(x); }

Tensor hardtanh(const Arg& x, double min_val, double max_val) {
  const Called name("hardtanh");
  LineScope line(x.line());
  WEFT_CHECK(min_val <= max_val, "hardtanh: the limits are ", min_val, " and ", max_val, "; need min_val <= max_val");
  return limited(floating_of(x, "hardtanh"), min_val, max_val);
}

Tensor relu6(const Arg& x) {
  const Called name("relu6");
  LineScope line(x.line());
  return limited(floating_of(x, "relu6"), 0, 6);
}

Tensor hardsigmoid(const Arg& arg) {
  return activated(arg, "hardsigmoid", [](const Tensor& x) { return limited(x + 3.0, 0, 6) / 6.0; });
}

Tensor hardswish(const Arg& arg) {
  return activated(arg, "hardswish", [](const Tensor& x) { return x * limited(x + 3.0, 0, 6) / 6.0; });
}

Tensor softsign(const Arg& arg) {
  return activated(arg, "softsign", [](const Tensor& x) { return x / (abs(x) + 1.0); });
}

Tensor tanhshrink(const Arg& arg) {
  return activated(arg, "tanhshrink", [](const Tensor& x) {
    return with_derivative(
        x,
        [](const Tensor& t) {
          // Below 1, x - tanh(x) would lose its digits: with z = x^2, tanh(x) = x / (1 + c), where c is the continued
          // fraction z / (3 + z / (5 + z / (7 + ...))), so the difference is x c / (1 + c).
          constexpr int kLast = 17;
          const Tensor near = lt(abs(t), 1.0), z = square(where(near, t, 0.0));
          Tensor d = z * (1.0 / kLast) + (kLast - 2.0);
          for (int k = kLast - 4; k > 1; k -= 2) d = z / d + static_cast<double>(k);
          const Tensor c = z / d;
          return where(near, t * (c / (c + 1.0)), t - tanh(t));
        },
        [](const Tensor& t, const Tensor&, const Tensor& dy) { return dy * square(tanh(t)); });
  });
}

Tensor hardshrink(const Arg& x, double lambd) {
  const FloatingOperand t(x, "hardshrink");
  return where(le(abs(t), lambd), 0.0, t);
}

Tensor softshrink(const Arg& arg, double lambd) {
  return activated(arg, "softshrink", [=](const Tensor& x) {
    WEFT_CHECK(lambd >= 0, "softshrink: lambd is ", lambd, "; need 0 or more");
    return where(le(abs(x), lambd), 0.0, x - sign(x) * lambd);
  });
}

Tensor threshold(const Arg& x, double threshold, double value) {
  const Called name("threshold");
  const FirstOperand t(x, "threshold");
  return where(le(t, threshold), full({}, value, {.dtype = t.dtype(), .device = t.device()}), t);
}

Tensor prelu(const Arg& arg, const Arg& weight) {
  return activated(arg, "prelu", [&](const Tensor& x) {
    const Tensor& w = floating_of(weight, "prelu");
    dtype_with(w, x, "prelu");
    WEFT_CHECK(w.numel() == 1 || (w.dim() == 1 && x.dim() >= 2 && w.size(0) == x.size(1)), "prelu: weight ", w.shape(),
               " does not fit x ", x.shape(), "; need one element, or one for each slice along dim 1");
    Shape shape = Shape::filled(x.dim(), 1);
    if (w.numel() != 1) shape[1] = w.size(0);
    return where(gt(x, 0.0), x, x * reshape(w, shape).to(x.dtype()));
  });
}

// At a bound that is a number, the gradient of x is 0.
Tensor clamp_min(const Arg& x, const Arg& lo) {
  const Called name("clamp_min");
  LineScope line(x.line());
  return lo.is_tensor() ? maximum(x, lo) : where(le(x, lo), lo, x);
}

Tensor clamp_max(const Arg& x, const Arg& hi) {
  const Called name("clamp_max");
  LineScope line(x.line());
  return hi.is_tensor() ? minimum(x, hi) : where(ge(x, hi), hi, x);
}

Tensor clamp(const Arg& x, const Arg& lo) {
  const Called name("clamp");
  return clamp_min(x, lo);
}

Tensor clamp(const Arg& x, const Arg& lo, const Arg& hi) {
  const Called name("clamp");
  LineScope line(x.line());
  const Arg* args[] = {&x, &lo, &hi};
  if (!lo.is_tensor() || !hi.is_tensor() || !is_floating(result_type(args))) return clamp_max(clamp_min(x, lo), hi);
  const DType dtype = result_type(args);
  const OperandPair ends = common(lo, hi, "clamp"), low = common(x, ends.a.to(dtype), "clamp");
  return between(low.a, low.b, broadcast_to(ends.b.to(dtype), low.a.shape()));
}

}  // namespace weft
