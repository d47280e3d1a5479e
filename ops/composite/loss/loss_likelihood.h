// Losses that are the negative logarithm of a distribution's density, and the divergence of two distributions. Dtypes
// and reductions are as in loss.h.
#pragma once
#include <string_view>

#include "framework/dispatch/arg.h"

namespace weft {

/// target (log target - x), where x is the logarithm of the model's probabilities and 0 log 0 = 0; with log_target,
/// target is a logarithm too: e^target (target - x). reduction also accepts "batchmean", the sum divided by the first
/// extent: the divergence by its definition. "mean" divides by the number of elements, as in PyTorch.
Tensor kl_div(const Arg& x, const Arg& target, std::string_view reduction = "mean", bool log_target = false);

struct PoissonNllOptions {
  bool log_input = true;  // x is the logarithm of the rate
  bool full = false;      // adds Stirling's approximation of log target! where target > 1
  double eps = 1e-8;      // without log_input: added to x before its logarithm
  std::string_view reduction = "mean";
};
/// e^x - target x, or x - target log(x + eps) without log_input.
Tensor poisson_nll_loss(const Arg& x, const Arg& target, const PoissonNllOptions& options = {});

struct GaussianNllOptions {
  bool full = false;  // adds log(2 pi) / 2
  double eps = 1e-6;  // the least variance; the gradient passes it unchanged, as in PyTorch
  std::string_view reduction = "mean";
};
/// (log var + (x - target)^2 / var) / 2; x and target broadcast. var is a number or has the shape of x, the same with
/// extents of 1, or the same without the last dim. NaN where var is negative.
Tensor gaussian_nll_loss(const Arg& x, const Arg& target, const Arg& var, const GaussianNllOptions& options = {});

}  // namespace weft
