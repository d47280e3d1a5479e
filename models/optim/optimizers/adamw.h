// AdamW (Loshchilov and Hutter 2017, arXiv:1711.05101), Adam and Adamax (Kingma and Ba 2014, arXiv:1412.6980), NAdam
// (Dozat 2016), RAdam (Liu et al. 2019, arXiv:1908.03265) and Lion (Chen et al. 2023, arXiv:2302.06675), as PyTorch
// computes them.
#pragma once
#include <array>

#include "models/optim/optimizer.h"

namespace weft::optim {

struct AdamWOptions {
  double lr = 1e-3;
  std::array<double, 2> betas = {0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = 0.01;
  bool amsgrad = false;  // v is the largest v so far (Reddi et al. 2018, arXiv:1904.09237)
  bool maximize = false;
};

/// p <- p (1 - lr wd) - lr / (1 - b1^t) m / (sqrt(v) / sqrt(1 - b2^t) + eps).
using AdamW = OptimizerWith<AdamWOptions>;

struct AdamOptions {
  double lr = 1e-3;
  std::array<double, 2> betas = {0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = 0;
  bool amsgrad = false;
  bool maximize = false;
};

/// AdamW with g <- g + wd p instead of the decay of p.
using Adam = OptimizerWith<AdamOptions>;

struct AdamaxOptions {
  double lr = 2e-3;
  std::array<double, 2> betas = {0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = 0;
  bool maximize = false;
};

/// g <- g + wd p;  u <- max(b2 u, |g| + eps);  p <- p - lr / (1 - b1^t) m / u.
using Adamax = OptimizerWith<AdamaxOptions>;

struct NAdamOptions {
  double lr = 2e-3;
  std::array<double, 2> betas = {0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = 0;
  double momentum_decay = 4e-3;
  bool decoupled_weight_decay = false;  // p <- p (1 - lr wd), instead of g <- g + wd p
  bool maximize = false;
};

/// Adam with Nesterov's momentum mu_t = b1 (1 - 0.96^(t momentum_decay) / 2):
/// p <- p - lr ((1 - mu_t) / (1 - M_t) g + mu_(t+1) / (1 - M_(t+1)) m) / (sqrt(v / (1 - b2^t)) + eps), where M_t is the
/// product of mu_1 to mu_t.
using NAdam = OptimizerWith<NAdamOptions>;

struct RAdamOptions {
  double lr = 1e-3;
  std::array<double, 2> betas = {0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = 0;
  bool decoupled_weight_decay = false;  // p <- p (1 - lr wd), instead of g <- g + wd p
  bool maximize = false;
};

/// Adam whose steps are as long as the variance of its second moment allows, with m^ = m / (1 - b1^t), r = 2 / (1 - b2)
/// - 1 and r_t = r - 2 t b2^t / (1 - b2^t): where r_t > 5, p <- p - lr m^ sqrt((r_t - 4) (r_t - 2) r / ((r - 4) (r - 2)
/// r_t)) sqrt(1 - b2^t) / (sqrt(v) + eps); otherwise p <- p - lr m^.
using RAdam = OptimizerWith<RAdamOptions>;

struct LionOptions {
  double lr = 1e-4;
  std::array<double, 2> betas = {0.9, 0.99};
  double weight_decay = 0;
};

/// p <- p (1 - lr wd) - lr sign(b1 m + (1 - b1) g);  m <- b2 m + (1 - b2) g.
using Lion = OptimizerWith<LionOptions>;

}  // namespace weft::optim
