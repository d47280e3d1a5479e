#include "models/optim/optimizers/rmsprop.h"

#include "models/optim/moments.h"
#include "models/optim/optimizer_with.h"
#include "ops/composite/layers/activation.h"
#include "ops/core/creation.h"

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

template <>
Optimizer::StateOf Adadelta::checked_state(const AdadeltaOptions& o) {
  WEFT_CHECK(o.rho >= 0 && o.rho <= 1, "Adadelta: rho is ", o.rho, "; need a number from 0 to 1");
  check_not_negative(o.eps, "eps", "Adadelta");
  return like_parameter({"square_avg", "acc_delta"});
}

template <>
Tensor Adadelta::next(Update& u, const AdadeltaOptions& o) {
  const Tensor g = with_decay(u.grad, u.value, u.weight_decay);
  Tensor &v = u.state[0], &moves = u.state[1];
  v = v * o.rho + square(g) * (1 - o.rho);
  const Tensor move = sqrt(moves + o.eps) / sqrt(v + o.eps) * g;
  moves = moves * o.rho + square(move) * (1 - o.rho);
  return u.value - move * u.lr;
}

template <>
Optimizer::StateOf Rprop::checked_state(const RpropOptions& o) {
  WEFT_CHECK(0 < o.etas[0] && o.etas[0] < 1 && 1 < o.etas[1], "Rprop: etas are ", o.etas[0], " and ", o.etas[1],
             "; need 0 < first < 1 < second");
  WEFT_CHECK(0 < o.step_sizes[0] && o.step_sizes[0] <= o.step_sizes[1], "Rprop: step_sizes are ", o.step_sizes[0],
             " and ", o.step_sizes[1], "; need 0 < least <= largest");
  return like_parameter({"prev", "step_size"});
}

template <>
Tensor Rprop::next(Update& u, const RpropOptions& o) {
  WEFT_CHECK(u.weight_decay == 0, "Rprop: weight_decay is ", u.weight_decay, "; need 0: only signs count");
  Tensor &before = u.state[0], &size = u.state[1];
  const Tensor turn = u.grad * before, turned = turn < 0.0;
  size = where(size == 0.0, u.lr, size);  // 0: before the first step
  size = clamp(size * where(turned, o.etas[0], where(turn > 0.0, o.etas[1], ones_like(turn))), o.step_sizes[0],
               o.step_sizes[1]);
  before = where(turned, 0.0, u.grad);
  return u.value - sign(before) * size;
}

template class OptimizerWith<RMSpropOptions>;
template class OptimizerWith<AdagradOptions>;
template class OptimizerWith<AdadeltaOptions>;
template class OptimizerWith<RpropOptions>;

}  // namespace weft::optim
