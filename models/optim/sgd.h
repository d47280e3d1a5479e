// SGD with momentum (Sutskever et al. 2013) and Muon (Jordan 2024, https://kellerjordan.github.io/posts/muon).
#pragma once
#include "models/optim/optimizer.h"

namespace weft::optim {

struct SGDOptions {
  double lr = 1e-3;
  double momentum = 0;
  double weight_decay = 0;
  bool nesterov = false;  // requires momentum > 0
};

/// g <- g + wd p;  m <- momentum m + g;  p <- p - lr (nesterov ? g + momentum m : m).
using SGD = OptimizerWith<SGDOptions>;

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
