// Shared by optimisers that keep moments of the gradient.
#pragma once
#include <array>
#include <cmath>

#include "ops/core/pointwise.h"

namespace weft::internal {

/// 1 - beta^step in f64: in f32, the subtraction would lose the digits of the first steps.
inline Tensor bias_correction(const Tensor& step, double beta) {
  return beta == 0 ? Tensor::from_vector<double>({1}, {}).to(step.device()) : -expm1(step * ::std::log(beta));
}

inline void check_betas(const std::array<double, 2>& betas, const char* op) {
  for (double b : betas)
    WEFT_CHECK(b >= 0 && b < 1, op, ": betas are ", betas[0], " and ", betas[1], "; need 0 <= beta < 1");
}

inline void check_not_negative(double value, const char* name, const char* op) {
  WEFT_CHECK(value >= 0, op, ": ", name, " is ", value, "; need a number >= 0");
}

/// value (1 - lr weight_decay).
inline Tensor decayed(const Tensor& value, const Tensor& lr, double weight_decay) {
  return weight_decay == 0 ? value : value * (1.0 - lr * weight_decay);
}

/// The gradient plus the gradient of weight_decay |value|^2 / 2.
inline Tensor with_decay(const Tensor& grad, const Tensor& value, double weight_decay) {
  return weight_decay == 0 ? grad : grad + value * weight_decay;
}

/// a + weight (b - a).
inline Tensor lerp(const Tensor& a, const Tensor& b, double weight) { return a + (b - a) * weight; }

}  // namespace weft::internal
