#include "ops/composite/random/distributions.h"

#include <cmath>
#include <limits>

#include "ops/composite/layers/activation.h"
#include "ops/composite/random/distribution_parts.h"
#include "ops/core/indexing/index.h"
#include "ops/core/indexing/view.h"
#include "ops/core/reductions/log_sum_exp.h"
#include "ops/core/reductions/reduce.h"

namespace weft::distributions {

using internal::LineScope;

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

Tensor eps_clamped(const Tensor& p) {
  const double eps = p.dtype() == kFloat64    ? 0x1p-52
                     : p.dtype() == kFloat32  ? 0x1p-23
                     : p.dtype() == kBFloat16 ? 0x1p-7
                                              : 0x1p-10;
  return minimum(maximum(p, eps), 1 - eps);
}

void check_one(const ProbsOrLogits& p, const char* op) {
  WEFT_CHECK(p.probs.defined() != p.logits.defined(), op, ": got ", p.probs.defined() ? "both" : "neither of",
             " probs and logits; need one of them");
}

// log(1 + e^x) without overflow.
Tensor softplus_of(const Tensor& x) { return add(maximum(x, 0.0), log1p(exp(neg(abs(x))))); }

}  // namespace

// ---- Normal ----

Normal::Normal(const Arg& mean, const Arg& deviation) {
  LineScope line(mean.line());
  loc = internal::parameter_of(mean, "Normal"), scale = internal::parameter_of(deviation, "Normal");
  internal::broadcast_parameters(loc, scale, "Normal");
  internal::check_values(gt(scale, 0.0), "Normal: a scale is not above 0; need positive numbers");
  internal::check_values(eq(loc, loc), "Normal: a loc is NaN; need numbers");
}
Tensor Normal::rsample(const Shape& shape, std::source_location at) const {
  LineScope line(at);
  return add(loc, mul(scale, randn(internal::extended(shape, loc), internal::options_like(loc), at)));
}
Tensor Normal::sample(const Shape& shape, std::source_location at) const {
  NoGrad guard;
  return rsample(shape, at).detach();
}
Tensor Normal::log_prob(const Arg& value) const {
  LineScope line(value.line());
  // The constant is subtracted last, because scale may be f32 where value is f64.
  return sub(sub(mul(square(div(sub(value, loc), scale)), -0.5), log(scale)), 0.5 * std::log(2 * M_PI));
}
Tensor Normal::mean(std::source_location) const { return loc; }
Tensor Normal::variance(std::source_location at) const {
  LineScope line(at);
  return square(scale);
}
Tensor Normal::entropy(std::source_location at) const {
  LineScope line(at);
  return add(log(scale), 0.5 + 0.5 * std::log(2 * M_PI));
}

Tensor kl_divergence(const Normal& p, const Normal& q, std::source_location at) {
  LineScope line(at);
  broadcast_shapes(p.loc.shape(), q.loc.shape(), "kl_divergence");
  const Tensor ratio = div(p.scale, q.scale);
  return sub(mul(add(square(ratio), sub(square(div(sub(p.loc, q.loc), q.scale)), 1.0)), 0.5), log(ratio));
}

// ---- Uniform ----

Uniform::Uniform(const Arg& from, const Arg& to) {
  LineScope line(from.line());
  low = internal::parameter_of(from, "Uniform"), high = internal::parameter_of(to, "Uniform");
  internal::broadcast_parameters(low, high, "Uniform");
  internal::check_values(lt(low, high), "Uniform: a low is not below its high; need low < high");
  internal::check_values(isfinite(sub(high, low)),
                         "Uniform: high - low is not finite; need a range that the dtype can hold");
}
Tensor Uniform::rsample(const Shape& shape, std::source_location at) const {
  LineScope line(at);
  return add(low, mul(sub(high, low), rand(internal::extended(shape, low), internal::options_like(low), at)));
}
Tensor Uniform::sample(const Shape& shape, std::source_location at) const {
  NoGrad guard;
  return rsample(shape, at).detach();
}
Tensor Uniform::log_prob(const Arg& value) const {
  LineScope line(value.line());
  const Tensor inside = bit_and(ge(value, low), lt(value, high));
  return where(inside, neg(log(sub(high, low))), where(isnan(mul(value, low)), mul(value, low), -kInf));
}
Tensor Uniform::mean(std::source_location at) const {
  LineScope line(at);
  return mul(add(low, high), 0.5);
}
Tensor Uniform::variance(std::source_location at) const {
  LineScope line(at);
  return div(square(sub(high, low)), 12.0);
}
Tensor Uniform::entropy(std::source_location at) const {
  LineScope line(at);
  return log(sub(high, low));
}

Tensor kl_divergence(const Uniform& p, const Uniform& q, std::source_location at) {
  LineScope line(at);
  broadcast_shapes(p.low.shape(), q.low.shape(), "kl_divergence");
  const Tensor inside = bit_and(le(q.low, p.low), le(p.high, q.high));
  return where(inside, log(div(sub(q.high, q.low), sub(p.high, p.low))), kInf);
}

// ---- Exponential ----

Exponential::Exponential(const Arg& per_time) {
  LineScope line(per_time.line());
  rate = internal::parameter_of(per_time, "Exponential");
  internal::check_values(gt(rate, 0.0), "Exponential: a rate is not above 0; need positive numbers");
}
Tensor Exponential::rsample(const Shape& shape, std::source_location at) const {
  LineScope line(at);
  return div(neg(log1p(neg(rand(internal::extended(shape, rate), internal::options_like(rate), at)))), rate);
}
Tensor Exponential::sample(const Shape& shape, std::source_location at) const {
  NoGrad guard;
  return rsample(shape, at).detach();
}
Tensor Exponential::log_prob(const Arg& value) const {
  LineScope line(value.line());
  return where(lt(value, 0.0), -kInf, sub(log(rate), mul(rate, value)));
}
Tensor Exponential::mean(std::source_location at) const {
  LineScope line(at);
  return reciprocal(rate);
}
Tensor Exponential::variance(std::source_location at) const {
  LineScope line(at);
  return reciprocal(square(rate));
}
Tensor Exponential::entropy(std::source_location at) const {
  LineScope line(at);
  return sub(1.0, log(rate));
}

Tensor kl_divergence(const Exponential& p, const Exponential& q, std::source_location at) {
  LineScope line(at);
  broadcast_shapes(p.rate.shape(), q.rate.shape(), "kl_divergence");
  const Tensor ratio = div(q.rate, p.rate);
  return sub(sub(ratio, 1.0), log(ratio));
}

// ---- Bernoulli ----

Bernoulli::Bernoulli(const Arg& p) {
  LineScope line(p.line());
  probs = internal::parameter_of(p, "Bernoulli");
  internal::check_values(bit_and(ge(probs, 0.0), le(probs, 1.0)),
                         "Bernoulli: a probability is not in [0, 1]; need probs, or logits");
  const Tensor inside = eps_clamped(probs);
  logits = sub(log(inside), log1p(neg(inside)));
}
Bernoulli::Bernoulli(const ProbsOrLogits& p, std::source_location at) {
  LineScope line(at);
  check_one(p, "Bernoulli");
  if (p.probs.defined()) {
    *this = Bernoulli(Arg(p.probs, at));
    return;
  }
  logits = internal::floating_of(Arg(p.logits, at), "Bernoulli");
  internal::check_values(eq(logits, logits), "Bernoulli: a logit is NaN; need numbers");
  probs = sigmoid(logits);
}
Tensor Bernoulli::sample(const Shape& shape, std::source_location at) const {
  LineScope line(at);
  NoGrad guard;
  return bernoulli(broadcast_to(probs.detach(), internal::extended(shape, probs)));
}
Tensor Bernoulli::log_prob(const Arg& value) const {
  LineScope line(value.line());
  const Tensor v =
      value.is_tensor() ? internal::tensor_of(value, "Bernoulli") : internal::parameter_of(value, "Bernoulli");
  internal::check_values(bit_or(eq(v, 0.0), eq(v, 1.0)),
                         "Bernoulli: a value is not 0 or 1; need 0 or 1, as sample() gives");
  return sub(mul(value, logits), softplus_of(logits));
}
Tensor Bernoulli::mean(std::source_location) const { return probs; }
Tensor Bernoulli::variance(std::source_location at) const {
  LineScope line(at);
  return mul(probs, sub(1.0, probs));
}
Tensor Bernoulli::entropy(std::source_location at) const {
  LineScope line(at);
  return sub(softplus_of(logits), mul(probs, logits));
}

Tensor kl_divergence(const Bernoulli& p, const Bernoulli& q, std::source_location at) {
  LineScope line(at);
  broadcast_shapes(p.probs.shape(), q.probs.shape(), "kl_divergence");
  // p log(p / q) + (1 - p) log((1 - p) / (1 - q)), with the logarithms of probabilities from the logits.
  const Tensor yes = sub(softplus_of(neg(q.logits)), softplus_of(neg(p.logits)));
  const Tensor no = sub(softplus_of(q.logits), softplus_of(p.logits));
  const Tensor finite = add(mul(p.probs, yes), mul(sub(1.0, p.probs), no));
  const Tensor impossible =
      bit_or(bit_and(eq(q.probs, 0.0), gt(p.probs, 0.0)), bit_and(eq(q.probs, 1.0), lt(p.probs, 1.0)));
  return where(impossible, kInf, finite);
}

// ---- Categorical ----

Categorical::Categorical(const Arg& p) {
  LineScope line(p.line());
  set({.probs = internal::parameter_of(p, "Categorical")});
}
Categorical::Categorical(const ProbsOrLogits& p, std::source_location at) {
  LineScope line(at);
  set(p);
}
void Categorical::set(const ProbsOrLogits& p) {
  check_one(p, "Categorical");
  const bool given = p.probs.defined();
  const Tensor& x = internal::floating_of(given ? p.probs : p.logits, "Categorical");
  WEFT_CHECK(x.dim() >= 1 && x.size(-1) > 0, "Categorical: got ", x.type(), "; need [..., classes]");
  if (given) {
    const Tensor total = sum(x, -1, true);
    internal::check_values(bit_and(ge(x, 0.0), bit_and(gt(total, 0.0), isfinite(total))),
                           "Categorical: probs are negative, NaN or sum to 0; need weights of 0 or more");
    probs = div(x, total);
    logits = log(eps_clamped(probs));
    return;
  }
  const internal::LogSumExp l = internal::log_sum_exp(x, -1, true);
  internal::check_values(isfinite(l.log_sum),
                         "Categorical: the logits of a row are NaN, all -inf, or inf; need numbers");
  logits = cast(sub(sub(x, l.shift), l.log_sum), x.dtype());
  probs = exp(logits);
}
Tensor Categorical::sample(const Shape& shape, std::source_location at) const {
  LineScope line(at);
  NoGrad guard;
  // Waiting times of exponential clocks with rates probs: the first one rings with its probability.
  const Tensor rates = internal::widened(probs.detach());
  const Tensor time = neg(log(rand(internal::extended(shape, rates), internal::options_like(rates), at)));
  return argmax(div(rates, time), -1);
}
Tensor Categorical::log_prob(const Arg& value) const {
  LineScope line(value.line());
  const Tensor v =
      value.is_tensor()
          ? value.tensor()
          : full({}, value, {.dtype = value.kind() == Arg::kInt ? kInt64 : kFloat32, .device = logits.device()});
  WEFT_CHECK(is_integral(v.dtype()), "Categorical: value is ", v.type(), "; need integers");
  Shape batch(std::span<const int64_t>(logits.shape()).first(logits.dim() - 1));
  batch = broadcast_shapes(batch, v.shape(), "Categorical: log_prob");
  Shape all = batch;
  all.push_back(logits.size(-1));
  return squeeze(gather(broadcast_to(logits, all), -1, unsqueeze(broadcast_to(v, batch), -1)), -1);
}
Tensor Categorical::entropy(std::source_location at) const {
  LineScope line(at);
  const Tensor none = eq(probs, 0.0);
  return neg(sum(where(none, 0.0, mul(probs, where(none, 0.0, logits))), -1));
}

Tensor kl_divergence(const Categorical& p, const Categorical& q, std::source_location at) {
  LineScope line(at);
  WEFT_CHECK(p.probs.size(-1) == q.probs.size(-1), "kl_divergence: Categoricals of ", p.probs.size(-1), " and ",
             q.probs.size(-1), " classes; need equal numbers");
  broadcast_shapes(p.probs.shape(), q.probs.shape(), "kl_divergence");
  const Tensor none = eq(p.probs, 0.0), never = eq(q.probs, 0.0), unused = bit_or(none, never);
  const Tensor term = mul(p.probs, sub(where(unused, 0.0, p.logits), where(unused, 0.0, q.logits)));
  return sum(where(none, 0.0, where(never, kInf, term)), -1);
}

}  // namespace weft::distributions
