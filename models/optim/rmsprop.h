// RMSprop (Hinton 2012) and Adagrad (Duchi et al. 2011), as PyTorch computes them.
#pragma once
#include "models/optim/optimizer.h"

namespace weft::optim {

struct RMSpropOptions {
  double lr = 1e-2;
  double alpha = 0.99;
  double eps = 1e-8;
  double weight_decay = 0;
  double momentum = 0;
  bool centered = false;  // v is the variance of the gradient instead of its mean square
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
};

/// g <- g + wd p;  s <- s + g^2;  p <- p - lr / (1 + (t - 1) lr_decay) g / (sqrt(s) + eps).
using Adagrad = OptimizerWith<AdagradOptions>;

}  // namespace weft::optim
