// AdamW (Loshchilov and Hutter 2017, arXiv:1711.05101) and Lion (Chen et al. 2023, arXiv:2302.06675).
#pragma once
#include <array>

#include "models/optim/optimizer.h"

namespace weft::optim {

struct AdamWOptions {
  double lr = 1e-3;
  std::array<double, 2> betas = {0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = 0.01;
};

/// p <- p (1 - lr wd) - lr / (1 - b1^t) m / (sqrt(v) / sqrt(1 - b2^t) + eps), as PyTorch computes it.
using AdamW = OptimizerWith<AdamWOptions>;
template <>
AdamW::OptimizerWith(std::vector<ParamGroup> groups, const AdamWOptions& options, std::source_location loc);
template <>
Tensor AdamW::updated(Update& u) const;

struct LionOptions {
  double lr = 1e-4;
  std::array<double, 2> betas = {0.9, 0.99};
  double weight_decay = 0;
};

/// p <- p (1 - lr wd) - lr sign(b1 m + (1 - b1) g);  m <- b2 m + (1 - b2) g.
using Lion = OptimizerWith<LionOptions>;
template <>
Lion::OptimizerWith(std::vector<ParamGroup> groups, const LionOptions& options, std::source_location loc);
template <>
Tensor Lion::updated(Update& u) const;

}  // namespace weft::optim
