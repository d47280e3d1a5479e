#include "models/optim/rmsprop.h"

#include "models/optim/moments.h"
#include "models/optim/optimizer_with.h"
#include "ops/composite/layers/activation.h"

namespace weft::optim {

using namespace internal;

template <>
Optimizer::StateOf RMSprop::checked_state(const RMSpropOptions& o) {
  check_not_negative(o.alpha, "alpha", "RMSprop");
  check_not_negative(o.eps, "eps", "RMSprop");
  check_not_negative(o.momentum, "momentum", "RMSprop");
  std::vector<std::string> names{"square_avg"};
  if (o.centered) names.emplace_back("grad_avg");
  if (o.momentum > 0) names.emplace_back("momentum");
  return like_parameter(std::move(names));
}

template <>
Tensor RMSprop::next(Update& u, const RMSpropOptions& o) {
  const Tensor g = with_decay(u.grad, u.value, u.weight_decay);
  Tensor& v = u.state[0];
  v = v * o.alpha + square(g) * (1 - o.alpha);
  Tensor size = v;
  if (o.centered) {
    Tensor& mean = u.state[1];
    mean = lerp(mean, g, 1 - o.alpha);
    size = clamp_min(v - square(mean), 0.0);  // rounding can make it negative
  }
  Tensor move = g / (sqrt(size) + o.eps);
  if (o.momentum > 0) u.state.back() = move = u.state.back() * o.momentum + move;
  return u.value - move * u.lr;
}

template <>
Optimizer::StateOf Adagrad::checked_state(const AdagradOptions& o) {
  check_not_negative(o.lr_decay, "lr_decay", "Adagrad");
  check_not_negative(o.initial_accumulator_value, "initial_accumulator_value", "Adagrad");
  check_not_negative(o.eps, "eps", "Adagrad");
  return [start = o.initial_accumulator_value](const Parameter& p) {
    return std::vector<StateTensor>{{"sum", p.shape(), start}};
  };
}

template <>
Tensor Adagrad::next(Update& u, const AdagradOptions& o) {
  const Tensor g = with_decay(u.grad, u.value, u.weight_decay);
  Tensor& total = u.state[0];
  total = total + square(g);
  const Tensor lr = o.lr_decay == 0 ? u.lr : (u.lr.to(kFloat64) / ((u.step - 1.0) * o.lr_decay + 1.0)).to(g.dtype());
  return u.value - g / (sqrt(total) + o.eps) * lr;
}

template class OptimizerWith<RMSpropOptions>;
template class OptimizerWith<AdagradOptions>;

}  // namespace weft::optim
