// Adafactor (Shazeer and Stern 2018, arXiv:1804.04235), as torch.optim.Adafactor computes it.
#pragma once
#include <optional>

#include "models/optim/optimizer.h"

namespace weft::optim {

struct AdafactorOptions {
  double lr = 1e-2;
  double beta2_decay = -0.8;
  std::optional<double> eps1 = {};  // default: distance from 1 to the next number of the arithmetic's dtype
  double eps2 = 1e-3;
  double d = 1;  // limit of the root mean square of an update
  double weight_decay = 0;
  bool maximize = false;
};

/// The estimate of a matrix's squared gradients is the product of a column and a row (the last two dims; the dims
/// before them are a batch), so the state consists of one row and one column. p <- p (1 - lr wd) - max(eps2, RMS(p))
/// r_t U / max(1, RMS(U) / d), where r_t = min(lr, 1 / sqrt(t)), b_t = 1 - t^beta2_decay and U = g / sqrt(estimate).
using Adafactor = OptimizerWith<AdafactorOptions>;

}  // namespace weft::optim
