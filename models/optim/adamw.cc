#include "models/optim/adamw.h"

#include "models/optim/moments.h"

namespace weft::optim {

using internal::bias_correction;
using internal::check_betas;
using internal::check_not_negative;
using internal::decayed;
using internal::lerp;
using internal::with_decay;

namespace {

std::vector<std::string> adam_state(bool amsgrad) {
  std::vector<std::string> names{"exp_avg", "exp_avg_sq"};
  if (amsgrad) names.emplace_back("max_exp_avg_sq");
  return names;
}

// lr m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + eps), after the moments took in the gradient.
template <class Options>
Tensor adam_move(Tensor* state, const Tensor& grad, const Tensor& lr, const Tensor& step, const Options& o) {
  const auto [b1, b2] = o.betas;
  Tensor& m = state[0];
  Tensor& v = state[1];
  m = lerp(m, grad, 1 - b1);
  v = v * b2 + square(grad) * (1 - b2);
  if (o.amsgrad) state[2] = maximum(state[2], v);
  const Tensor c1 = bias_correction(step, b1), c2 = sqrt(bias_correction(step, b2)).to(v.dtype());
  const Tensor size = (lr.to(kFloat64) / c1).to(v.dtype());
  return m / (sqrt(o.amsgrad ? state[2] : v) / c2 + o.eps) * size;
}

}  // namespace

template <>
AdamW::OptimizerWith(std::vector<ParamGroup> groups, const AdamWOptions& o, std::source_location loc)
    : Optimizer(std::move(groups), o.lr, o.weight_decay, adam_state(o.amsgrad), loc), options_(o) {
  internal::LineScope line(loc);
  check_betas(o.betas, "AdamW");
  check_not_negative(o.eps, "eps", "AdamW");
}

template <>
Tensor AdamW::updated(Update& u) const {
  const Tensor move = adam_move(u.state.data(), u.grad, u.lr, u.step, options_);
  return decayed(u.value, u.lr, u.weight_decay) - move;
}

template <>
Adam::OptimizerWith(std::vector<ParamGroup> groups, const AdamOptions& o, std::source_location loc)
    : Optimizer(std::move(groups), o.lr, o.weight_decay, adam_state(o.amsgrad), loc), options_(o) {
  internal::LineScope line(loc);
  check_betas(o.betas, "Adam");
  check_not_negative(o.eps, "eps", "Adam");
}

template <>
Tensor Adam::updated(Update& u) const {
  const Tensor g = with_decay(u.grad, u.value, u.weight_decay);
  return u.value - adam_move(u.state.data(), g, u.lr, u.step, options_);
}

template <>
Adamax::OptimizerWith(std::vector<ParamGroup> groups, const AdamaxOptions& o, std::source_location loc)
    : Optimizer(std::move(groups), o.lr, o.weight_decay, {"exp_avg", "exp_inf"}, loc), options_(o) {
  internal::LineScope line(loc);
  check_betas(o.betas, "Adamax");
  WEFT_CHECK(o.eps > 0, "Adamax: eps is ", o.eps, "; need a number above 0");
}

template <>
Tensor Adamax::updated(Update& u) const {
  const auto [b1, b2] = options_.betas;
  const Tensor g = with_decay(u.grad, u.value, u.weight_decay);
  Tensor &m = u.state[0], &largest = u.state[1];
  m = lerp(m, g, 1 - b1);
  largest = maximum(largest * b2, abs(g) + options_.eps);
  const Tensor size = (u.lr.to(kFloat64) / bias_correction(u.step, b1)).to(m.dtype());
  return u.value - m / largest * size;
}

template <>
NAdam::OptimizerWith(std::vector<ParamGroup> groups, const NAdamOptions& o, std::source_location loc)
    : Optimizer(
          std::move(groups), o.lr, o.weight_decay,
          [](const Parameter& p) {
            return std::vector<StateTensor>{{"exp_avg", p.shape()}, {"exp_avg_sq", p.shape()}, {"mu_product", {}, 1}};
          },
          loc),
      options_(o) {
  internal::LineScope line(loc);
  check_betas(o.betas, "NAdam");
  check_not_negative(o.eps, "eps", "NAdam");
  check_not_negative(o.momentum_decay, "momentum_decay", "NAdam");
}

template <>
Tensor NAdam::updated(Update& u) const {
  const auto [b1, b2] = options_.betas;
  const bool decoupled = options_.decoupled_weight_decay;
  const Tensor g = decoupled ? u.grad : with_decay(u.grad, u.value, u.weight_decay);
  // The momentum of a step, b1 (1 - 0.96^(step momentum_decay) / 2).
  const double beta = b1, rate = ::std::log(0.96) * options_.momentum_decay;
  const auto momentum = [&](const Tensor& step) { return (1.0 - exp(step * rate) * 0.5) * beta; };
  Tensor &m = u.state[0], &v = u.state[1], &product = u.state[2];
  const Tensor mu = momentum(u.step), next = momentum(u.step + 1.0), all = product.to(kFloat64) * mu;
  product = all.to(v.dtype());
  m = lerp(m, g, 1 - b1);
  v = v * b2 + square(g) * (1 - b2);
  const Tensor size = sqrt(v) / sqrt(bias_correction(u.step, b2)).to(v.dtype()) + options_.eps;
  const Tensor lr = u.lr.to(kFloat64), of_g = lr * (1.0 - mu) / (1.0 - all), of_m = lr * next / (1.0 - all * next);
  const Tensor value = decoupled ? decayed(u.value, u.lr, u.weight_decay) : u.value;
  return value - (g * of_g.to(v.dtype()) + m * of_m.to(v.dtype())) / size;
}

template <>
Lion::OptimizerWith(std::vector<ParamGroup> groups, const LionOptions& o, std::source_location loc)
    : Optimizer(std::move(groups), o.lr, o.weight_decay, {"exp_avg"}, loc), options_(o) {
  internal::LineScope line(loc);
  check_betas(o.betas, "Lion");
}

template <>
Tensor Lion::updated(Update& u) const {
  const auto [b1, b2] = options_.betas;
  Tensor& m = u.state[0];
  const Tensor direction = sign(lerp(m, u.grad, 1 - b1));
  m = lerp(m, u.grad, 1 - b2);
  return decayed(u.value, u.lr, u.weight_decay) - direction * u.lr;
}

}  // namespace weft::optim
