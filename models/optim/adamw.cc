#include "models/optim/adamw.h"

#include <cmath>

#include "ops/core/pointwise.h"

namespace weft::optim {
namespace {

// 1 - beta^step in f64: in f32, the subtraction would lose the digits of the first steps.
Tensor bias_correction(const Tensor& step, double beta) {
  return beta == 0 ? Tensor::from_vector<double>({1}, {}).to(step.device()) : -expm1(step * ::std::log(beta));
}

void check_betas(const std::array<double, 2>& betas, const char* op) {
  for (double b : betas)
    WEFT_CHECK(b >= 0 && b < 1, op, ": betas are ", betas[0], " and ", betas[1], "; need 0 <= beta < 1");
}

Tensor decayed(const Tensor& value, const Tensor& lr, double weight_decay) {
  return weight_decay == 0 ? value : value * (1.0 - lr * weight_decay);
}

// a + weight (b - a).
Tensor lerp(const Tensor& a, const Tensor& b, double weight) { return a + (b - a) * weight; }

}  // namespace

template <>
AdamW::OptimizerWith(std::vector<ParamGroup> groups, const AdamWOptions& o, std::source_location loc)
    : Optimizer(std::move(groups), o.lr, o.weight_decay, {"exp_avg", "exp_avg_sq"}, loc), options_(o) {
  internal::LineScope line(loc);
  check_betas(o.betas, "AdamW");
  WEFT_CHECK(o.eps >= 0, "AdamW: eps is ", o.eps, "; need a number >= 0");
}

template <>
Tensor AdamW::updated(Update& u) const {
  const auto [b1, b2] = options_.betas;
  Tensor& m = u.state[0];
  Tensor& v = u.state[1];
  m = lerp(m, u.grad, 1 - b1);
  v = v * b2 + square(u.grad) * (1 - b2);
  const Tensor c1 = bias_correction(u.step, b1), c2 = sqrt(bias_correction(u.step, b2)).to(v.dtype());
  const Tensor size = (u.lr.to(kFloat64) / c1).to(v.dtype());
  return decayed(u.value, u.lr, u.weight_decay) - m / (sqrt(v) / c2 + options_.eps) * size;
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
