// RMSprop (Hinton 2012), Adagrad (Duchi et al. 2011), Adadelta (Zeiler 2012, arXiv:1212.5701) and Rprop (Riedmiller and
// Braun 1993), as PyTorch computes them.
#pragma once
#include <array>

#include "models/optim/optimizer.h"

namespace weft::optim {

struct RMSpropOptions {
  double lr = 1e-2;
  double alpha = 0.99;
  double eps = 1e-8;
  double weight_decay = 0;
  double momentum = 0;
  bool centered = false;  // v is the variance of the gradient instead of its mean square
  bool maximize = false;
};

/// g <- g + wd p;  v <- alpha v + (1 - alpha) g^2;  b <- momentum b + g / (sqrt(v) + eps);  p <- p - lr b. Centered,
/// with the running mean a of g: sqrt(v - a^2) in place of sqrt(v).
using RMSprop = OptimizerWith<RMSpropOptions>;

struct AdagradOptions {
  double lr = 1e-2;
  double lr_decay = 0;
  double weight_decay = 0;
  double initial_accumulator_value = 0;
  double eps = 1e-10;
  bool maximize = false;
};

/// g <- g + wd p;  s <- s + g^2;  p <- p - lr / (1 + (t - 1) lr_decay) g / (sqrt(s) + eps).
using Adagrad = OptimizerWith<AdagradOptions>;

struct AdadeltaOptions {
  double lr = 1;
  double rho = 0.9;
  double eps = 1e-6;
  double weight_decay = 0;
  bool maximize = false;
};

/// g <- g + wd p;  v <- rho v + (1 - rho) g^2;  d = sqrt(a + eps) / sqrt(v + eps) g;  a <- rho a + (1 - rho) d^2;
/// p <- p - lr d.
using Adadelta = OptimizerWith<AdadeltaOptions>;

struct RpropOptions {
  double lr = 1e-2;                               // the first size of each element's steps; later it has no effect
  std::array<double, 2> etas = {0.5, 1.2};        // factors of the size where the gradient changed its sign, or kept it
  std::array<double, 2> step_sizes = {1e-6, 50};  // least and largest size
  bool maximize = false;
};

/// p <- p - size sign(g), for each element with a size of its own; where g changed its sign, p stays and g counts as 0.
using Rprop = OptimizerWith<RpropOptions>;

}  // namespace weft::optim
