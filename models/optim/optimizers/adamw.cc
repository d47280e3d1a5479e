#include "models/optim/optimizers/adamw.h"

#include "models/optim/moments.h"
#include "models/optim/optimizer_with.h"

namespace weft::optim {

using namespace internal;

namespace {

// The names of the state of Adam and AdamW, after a check of the options.
template <class Options>
std::vector<std::string> adam_state(const Options& o, const char* op) {
  check_betas(o.betas, op);
  check_not_negative(o.eps, "eps", op);
  std::vector<std::string> names{"exp_avg", "exp_avg_sq"};
  if (o.amsgrad) names.emplace_back("max_exp_avg_sq");
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
Optimizer::StateOf AdamW::checked_state(const AdamWOptions& o) {
  return like_parameter(adam_state(o, "AdamW"));
}

template <>
Tensor AdamW::next(Update& u, const AdamWOptions& o) {
  const Tensor move = adam_move(u.state.data(), u.grad, u.lr, u.step, o);
  return decayed(u.value, u.lr, u.weight_decay) - move;
}

template <>
Optimizer::StateOf Adam::checked_state(const AdamOptions& o) {
  return like_parameter(adam_state(o, "Adam"));
}

template <>
Tensor Adam::next(Update& u, const AdamOptions& o) {
  const Tensor g = with_decay(u.grad, u.value, u.weight_decay);
  return u.value - adam_move(u.state.data(), g, u.lr, u.step, o);
}

template <>
Optimizer::StateOf Adamax::checked_state(const AdamaxOptions& o) {
  check_betas(o.betas, "Adamax");
  WEFT_CHECK(o.eps > 0, "Adamax: eps is ", o.eps, "; need a number above 0");
  return like_parameter({"exp_avg", "exp_inf"});
}

template <>
Tensor Adamax::next(Update& u, const AdamaxOptions& o) {
  const auto [b1, b2] = o.betas;
  const Tensor g = with_decay(u.grad, u.value, u.weight_decay);
  Tensor &m = u.state[0], &largest = u.state[1];
  m = lerp(m, g, 1 - b1);
  largest = maximum(largest * b2, abs(g) + o.eps);
  const Tensor size = (u.lr.to(kFloat64) / bias_correction(u.step, b1)).to(m.dtype());
  return u.value - m / largest * size;
}

template <>
Optimizer::StateOf NAdam::checked_state(const NAdamOptions& o) {
  check_betas(o.betas, "NAdam");
  check_not_negative(o.eps, "eps", "NAdam");
  check_not_negative(o.momentum_decay, "momentum_decay", "NAdam");
  return [](const Parameter& p) {
    return std::vector<StateTensor>{{"exp_avg", p.shape()}, {"exp_avg_sq", p.shape()}, {"mu_product", {}, 1}};
  };
}

template <>
Tensor NAdam::next(Update& u, const NAdamOptions& o) {
  const auto [b1, b2] = o.betas;
  const bool decoupled = o.decoupled_weight_decay;
  const Tensor g = decoupled ? u.grad : with_decay(u.grad, u.value, u.weight_decay);
  // The momentum of a step, b1 (1 - 0.96^(step momentum_decay) / 2).
  const double beta = b1, rate = ::std::log(0.96) * o.momentum_decay;
  const auto momentum = [&](const Tensor& step) { return (1.0 - exp(step * rate) * 0.5) * beta; };
  Tensor &m = u.state[0], &v = u.state[1], &product = u.state[2];
  const Tensor mu = momentum(u.step), next = momentum(u.step + 1.0), all = product.to(kFloat64) * mu;
  product = all.to(v.dtype());
  m = lerp(m, g, 1 - b1);
  v = v * b2 + square(g) * (1 - b2);
  const Tensor size = sqrt(v) / sqrt(bias_correction(u.step, b2)).to(v.dtype()) + o.eps;
  const Tensor lr = u.lr.to(kFloat64), of_g = lr * (1.0 - mu) / (1.0 - all), of_m = lr * next / (1.0 - all * next);
  const Tensor value = decoupled ? decayed(u.value, u.lr, u.weight_decay) : u.value;
  return value - (g * of_g.to(v.dtype()) + m * of_m.to(v.dtype())) / size;
}

template <>
Optimizer::StateOf RAdam::checked_state(const RAdamOptions& o) {
  check_betas(o.betas, "RAdam");
  check_not_negative(o.eps, "eps", "RAdam");
  return like_parameter({"exp_avg", "exp_avg_sq"});
}

template <>
Tensor RAdam::next(Update& u, const RAdamOptions& o) {
  const auto [b1, b2] = o.betas;
  const bool decoupled = o.decoupled_weight_decay;
  const Tensor g = decoupled ? u.grad : with_decay(u.grad, u.value, u.weight_decay);
  Tensor &m = u.state[0], &v = u.state[1];
  m = lerp(m, g, 1 - b1);
  v = v * b2 + square(g) * (1 - b2);
  const Tensor c1 = bias_correction(u.step, b1), c2 = bias_correction(u.step, b2);
  const double r = 2 / (1 - b2) - 1;
  const Tensor now = r - u.step * 2.0 * (1.0 - c2) / c2, known = now > 5.0;
  const Tensor part = where(known, (now - 4.0) * (now - 2.0) / now, 0.0) * (r / ((r - 4) * (r - 2)));
  const Tensor size = (u.lr.to(kFloat64) / c1).to(v.dtype()), adapted = sqrt(part * c2).to(v.dtype());
  const Tensor value = decoupled ? decayed(u.value, u.lr, u.weight_decay) : u.value;
  return value - m * size * where(known, adapted / (sqrt(v) + o.eps), 1.0);
}

template <>
Optimizer::StateOf Lion::checked_state(const LionOptions& o) {
  check_betas(o.betas, "Lion");
  return like_parameter({"exp_avg"});
}

template <>
Tensor Lion::next(Update& u, const LionOptions& o) {
  const auto [b1, b2] = o.betas;
  Tensor& m = u.state[0];
  const Tensor direction = sign(lerp(m, u.grad, 1 - b1));
  m = lerp(m, u.grad, 1 - b2);
  return decayed(u.value, u.lr, u.weight_decay) - direction * u.lr;
}

template class OptimizerWith<AdamWOptions>;
template class OptimizerWith<AdamOptions>;
template class OptimizerWith<AdamaxOptions>;
template class OptimizerWith<NAdamOptions>;
template class OptimizerWith<RAdamOptions>;
template class OptimizerWith<LionOptions>;

}  // namespace weft::optim
