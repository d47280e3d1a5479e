#include "ops/composite/random/gamma.h"

#include <limits>

#include "ops/composite/layers/activation.h"
#include "ops/composite/layers/softmax.h"
#include "ops/composite/math/derivative.h"
#include "ops/composite/math/special.h"
#include "ops/composite/random/distribution_parts.h"
#include "ops/core/indexing/index.h"

namespace weft::distributions {

using internal::broadcast_parameters;
using internal::check_values;
using internal::extended;
using internal::LineScope;
using internal::parameter_of;

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

// A proposal is refused with a probability of at most 0.05 (at concentration 1), all of them with 3e-16.
constexpr int64_t kProposals = 12;

// The logarithm of draws from Gamma(concentration, 1), in f64: the cube of a normal number, accepted with a probability
// (Marsaglia and Tsang 2000). A concentration below 1 is raised by 1, and the draw multiplied by
// uniform^(1 / concentration); the logarithm of that product does not underflow.
Tensor log_of_draws(const Tensor& concentration, const Shape& shape) {
  NoGrad guard;
  const Tensor a = broadcast_to(cast(concentration.detach(), kFloat64), shape);
  const TensorOptions wide = internal::options_like(a);
  const Tensor small = lt(a, 1.0), d = sub(where(small, add(a, 1.0), a), 1.0 / 3);
  Shape proposals{kProposals};
  for (int64_t n : shape) proposals.push_back(n);
  const Tensor z = randn(proposals, wide), u = rand(proposals, wide);
  const Tensor t = add(mul(z, rsqrt(mul(d, 9.0))), 1.0), possible = gt(t, 0.0);
  const Tensor log_v = mul(log(where(possible, t, 1.0)), 3.0), v = mul(t, square(t));
  const Tensor limit = add(mul(square(z), 0.5), mul(d, add(sub(1.0, v), log_v)));
  const Tensor accepted = bit_and(possible, lt(log1p(neg(u)), limit));
  const Tensor first = argmax(cast(accepted, kInt32), 0, true);
  const Tensor more = div(log1p(neg(rand(shape, wide))), a);
  return add(add(log(d), squeeze(gather(log_v, 0, first), 0)), where(small, more, 0.0));
}

// log_of_draws with the gradient with respect to the concentration.
Tensor moving_draws(const Tensor& concentration, const Shape& shape) {
  const Tensor draws = log_of_draws(concentration, shape);
  if (!grad_enabled()) return draws;
  return internal::with_derivative(
      broadcast_to(cast(concentration, kFloat64), shape), draws, [](const Tensor&, const Tensor& y) { return y; },
      [](const Tensor& a, const Tensor&, const Tensor& y, const Tensor& dy) {
        return internal::PairGrads{mul(dy, internal::slope_of_log_gamma(y, a)), Tensor()};
      });
}

double least_normal(DType t) {
  return t == kFloat64 ? std::numeric_limits<double>::min() : t == kFloat16 ? 0x1p-14 : 0x1p-126;
}

}  // namespace

// ---- Gamma ----

Gamma::Gamma(const Arg& shape, const Arg& per_time) {
  LineScope line(shape.line());
  concentration = parameter_of(shape, "Gamma"), rate = parameter_of(per_time, "Gamma");
  broadcast_parameters(concentration, rate, "Gamma");
  check_values(gt(concentration, 0.0), "Gamma: a concentration is not above 0; need positive numbers");
  check_values(gt(rate, 0.0), "Gamma: a rate is not above 0; need positive numbers");
}
Tensor Gamma::rsample(const Shape& shape, std::source_location at) const {
  LineScope line(at);
  const Tensor draws = exp(moving_draws(concentration, extended(shape, concentration)));
  return maximum(cast(div(draws, rate), rate.dtype()), least_normal(rate.dtype()));
}
Tensor Gamma::sample(const Shape& shape, std::source_location at) const {
  NoGrad guard;
  return rsample(shape, at).detach();
}
Tensor Gamma::log_prob(const Arg& value) const {
  LineScope line(value.line());
  const Tensor y = sub(sub(add(xlogy(concentration, rate), xlogy(sub(concentration, 1.0), value)), mul(rate, value)),
                       lgamma(concentration));
  return where(lt(value, 0.0), -kInf, y);
}
Tensor Gamma::entropy(std::source_location at) const {
  LineScope line(at);
  return add(add(sub(concentration, log(rate)), lgamma(concentration)),
             mul(sub(1.0, concentration), digamma(concentration)));
}
Tensor Gamma::mean(std::source_location at) const {
  LineScope line(at);
  return div(concentration, rate);
}
Tensor Gamma::variance(std::source_location at) const {
  LineScope line(at);
  return div(concentration, square(rate));
}

Tensor kl_divergence(const Gamma& p, const Gamma& q, std::source_location at) {
  LineScope line(at);
  broadcast_shapes(p.concentration.shape(), q.concentration.shape(), "kl_divergence");
  const Tensor ratio = div(q.rate, p.rate);
  const Tensor of_rates = sub(mul(p.concentration, sub(ratio, 1.0)), mul(q.concentration, log(ratio)));
  return add(of_rates, add(sub(lgamma(q.concentration), lgamma(p.concentration)),
                           mul(sub(p.concentration, q.concentration), digamma(p.concentration))));
}

// ---- Dirichlet ----

Dirichlet::Dirichlet(const Arg& weights) {
  LineScope line(weights.line());
  concentration = parameter_of(weights, "Dirichlet");
  WEFT_CHECK(concentration.dim() >= 1 && concentration.size(-1) > 0, "Dirichlet: concentration is ",
             concentration.type(), "; need [..., n]");
  check_values(gt(concentration, 0.0), "Dirichlet: a concentration is not above 0; need positive numbers");
}
Tensor Dirichlet::rsample(const Shape& shape, std::source_location at) const {
  LineScope line(at);
  return cast(softmax(moving_draws(concentration, extended(shape, concentration)), -1), concentration.dtype());
}
Tensor Dirichlet::sample(const Shape& shape, std::source_location at) const {
  NoGrad guard;
  return rsample(shape, at).detach();
}
Tensor Dirichlet::log_prob(const Arg& value) const {
  LineScope line(value.line());
  const Tensor& v = internal::floating_of(value, "Dirichlet");
  WEFT_CHECK(v.dim() >= 1 && v.size(-1) == concentration.size(-1), "Dirichlet: value is ", v.type(), "; need [..., ",
             concentration.size(-1), "]");
  check_values(bit_and(all(ge(v, 0.0), -1), lt(abs(sub(sum(v, -1), 1.0)), 1e-6)),
               "Dirichlet: a value is negative or its sum is not 1; need values of at least 0 with the sum 1, as "
               "sample() gives");
  return sub(add(sum(xlogy(sub(concentration, 1.0), v), -1), lgamma(sum(concentration, -1))),
             sum(lgamma(concentration), -1));
}
Tensor Dirichlet::entropy(std::source_location at) const {
  LineScope line(at);
  const Tensor total = sum(concentration, -1);
  const auto n = static_cast<double>(concentration.size(-1));
  return sub(sub(sub(sum(lgamma(concentration), -1), lgamma(total)), mul(sub(n, total), digamma(total))),
             sum(mul(sub(concentration, 1.0), digamma(concentration)), -1));
}
Tensor Dirichlet::mean(std::source_location at) const {
  LineScope line(at);
  return div(concentration, sum(concentration, -1, true));
}
Tensor Dirichlet::variance(std::source_location at) const {
  LineScope line(at);
  const Tensor total = sum(concentration, -1, true);
  return div(mul(concentration, sub(total, concentration)), mul(square(total), add(total, 1.0)));
}

Tensor kl_divergence(const Dirichlet& p, const Dirichlet& q, std::source_location at) {
  LineScope line(at);
  const Tensor &a = p.concentration, &b = q.concentration;
  WEFT_CHECK(a.size(-1) == b.size(-1), "kl_divergence: Dirichlets of ", a.size(-1), " and ", b.size(-1),
             " numbers; need equal numbers");
  broadcast_shapes(a.shape(), b.shape(), "kl_divergence");
  const Tensor total = sum(a, -1, true);
  const Tensor each = add(sub(lgamma(b), lgamma(a)), mul(sub(a, b), sub(digamma(a), digamma(total))));
  return add(sum(each, -1), sub(lgamma(squeeze(total, -1)), lgamma(sum(b, -1))));
}

// ---- Beta ----

Beta::Beta(const Arg& ones, const Arg& zeros) {
  LineScope line(ones.line());
  concentration1 = parameter_of(ones, "Beta"), concentration0 = parameter_of(zeros, "Beta");
  broadcast_parameters(concentration1, concentration0, "Beta");
  check_values(bit_and(gt(concentration1, 0.0), gt(concentration0, 0.0)),
               "Beta: a concentration is not above 0; need positive numbers");
}
Dirichlet Beta::pair() const { return Dirichlet(stack({concentration1, concentration0}, -1)); }
Tensor Beta::rsample(const Shape& shape, std::source_location at) const {
  return pair().rsample(shape, at).select(-1, 0);
}
Tensor Beta::sample(const Shape& shape, std::source_location at) const {
  return pair().sample(shape, at).select(-1, 0);
}
Tensor Beta::log_prob(const Arg& value) const {
  LineScope line(value.line());
  const Tensor inside = bit_and(ge(value, 0.0), le(value, 1.0));
  const Tensor total = add(concentration1, concentration0);
  const Tensor y = add(xlogy(sub(concentration1, 1.0), value), xlogy(sub(concentration0, 1.0), sub(1.0, value)));
  return where(inside, sub(add(y, lgamma(total)), add(lgamma(concentration1), lgamma(concentration0))), -kInf);
}
Tensor Beta::entropy(std::source_location at) const { return pair().entropy(at); }
Tensor kl_divergence(const Beta& p, const Beta& q, std::source_location at) {
  return kl_divergence(p.pair(), q.pair(), at);
}
Tensor Beta::mean(std::source_location at) const { return pair().mean(at).select(-1, 0); }
Tensor Beta::variance(std::source_location at) const { return pair().variance(at).select(-1, 0); }

}  // namespace weft::distributions
