// The gradient of draws from a gamma distribution.
#include <cmath>
#include <vector>

#include "ops/composite/math/special.h"
#include "ops/composite/random/distribution_parts.h"

namespace weft {

// -(dP / da) / (x p) with the probability P of smaller draws and the density p at x. Relative errors are below 1e-9.
//   x < 1:  e^x (s2 - l s1), where l = y - digamma(a), and sk is the sum of (-x)^n / n! / (a + n)^k for n from 0
//   x >= 1: the integral of (l s + v) e^(s a v - x (e^(s v) - 1)) over v > 0, where s is the sign of l, so that all of
//           it is positive: P by the density at x e^(s v), from the side where P or 1 - P is less.
// The integral is a sum at v = w u, where u = e^(t - e^-t) for equidistant t (Takahasi and Mori 1974), and w is the
// width of the integrand up to a factor.
Tensor internal::slope_of_log_gamma(const Tensor& y, const Tensor& a) {
  constexpr int64_t kTerms = 18, kNodes = 81;
  constexpr double kStep = 0.1, kFirst = -4;
  std::vector<double> order, term, node, weight;
  for (int64_t n = 0; n < kTerms; ++n) {
    order.push_back(static_cast<double>(n));
    term.push_back(n ? -term.back() / static_cast<double>(n) : 1);
  }
  for (int64_t i = 0; i < kNodes; ++i) {
    const double t = kFirst + kStep * static_cast<double>(i), u = std::exp(t - std::exp(-t));
    node.push_back(u), weight.push_back(kStep * (1 + std::exp(-t)) * u);
  }
  const auto list = [&](const std::vector<double>& v) {  // along a new dim in front
    Shape shape = Shape::filled(a.dim() + 1, 1);
    shape[0] = static_cast<int64_t>(v.size());
    return Tensor::from_vector<double>(v, shape).to(a.device());
  };
  const Tensor below = lt(y, 0.0), l = sub(y, digamma(a));
  const Tensor x = where(below, exp(y), 0.5), n = list(order);
  const Tensor terms = div(mul(list(term), pow(x, n)), add(a, n));
  const Tensor small = mul(exp(x), sub(sum(div(terms, add(a, n)), 0), mul(l, sum(terms, 0))));
  const Tensor z = where(below, 1.0, exp(y)), up = gt(l, 0.0), s = where(up, 1.0, full_like(l, -1.0));
  const Tensor width = where(up, log1p(rsqrt(z)), reciprocal(minimum(a, sqrt(a))));
  const Tensor v = mul(width, list(node)), sv = mul(s, v);
  const Tensor density = exp(sub(mul(a, sv), mul(z, expm1(sv))));
  const Tensor large = mul(width, sum(mul(mul(add(mul(l, s), v), density), list(weight)), 0));
  return where(below, small, large);
}

}  // namespace weft
