// SGD with momentum (Sutskever et al. 2013), ASGD (Polyak and Juditsky 1992) and Muon (Jordan 2024,
// https://kellerjordan.github.io/posts/muon).
#pragma once
#include "models/optim/optimizer.h"

namespace weft::optim {

struct SGDOptions {
  double lr = 1e-3;
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;
  bool nesterov = false;  // requires momentum > 0 and dampening = 0
  bool maximize = false;
};

/// g <- g + wd p;  m <- momentum m + (1 - dampening) g, and m <- g in the first step;  p <- p - lr (nesterov ? g +
/// momentum m : m).
using SGD = OptimizerWith<SGDOptions>;

struct ASGDOptions {
  double lr = 1e-2;
  double lambd = 1e-4;
  double alpha = 0.75;
  double t0 = 1e6;
  double weight_decay = 0;
  bool maximize = false;
};

/// p <- p (1 - lambd eta) - eta (g + wd p), where eta = lr / (1 + lambd lr t)^alpha of the step before, and lr in the
/// first step. The state "ax" is p before step t0 + 2, and then the mean of p from there on; state_dict() contains it.
using ASGD = OptimizerWith<ASGDOptions>;

struct MuonOptions {
  double lr = 0.02;
  double momentum = 0.95;
  double weight_decay = 0;
  bool nesterov = true;
  int iterations = 5;  // number of Newton-Schulz iterations
};

/// SGD that makes the update of each matrix nearly orthogonal and scales it by sqrt(max(1, rows / columns)). Parameters
/// must have at least two dims; the dims before the last two are a batch (experts). Use AdamW for embeddings and
/// vectors.
using Muon = OptimizerWith<MuonOptions>;

}  // namespace weft::optim
