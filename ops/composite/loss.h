// Losses. Computed in f32 for 16-bit floats; the result is then f32, because a loss must not be rounded to 8 bits.
// reduction is "mean", "sum" or "none".
#pragma once
#include <string_view>

#include "framework/dispatch/arg.h"

namespace weft {

struct CrossEntropyOptions {
  int64_t ignore_index = -100;          // targets with this value are ignored
  double label_smoothing = 0;           // s: targets are (1 - s) onehot + s / C (Szegedy et al. 2015, arXiv:1512.00567)
  std::string_view reduction = "mean";  // over the targets that count; NaN if there are none, as in PyTorch
  double z_loss = 0;                    // adds z_loss * logsumexp(logits)^2 (Chowdhery et al. 2022, arXiv:2204.02311)
};
/// -log softmax(logits)[target]. The last dim of logits is the classes, for any number of dims (PyTorch: dim 1):
/// [..., C] with integer targets [...] in [0, C), or with probabilities [..., C] of a floating-point dtype. A target
/// out of range throws OutOfRange with its position.
Tensor cross_entropy(const Arg& logits, const Arg& targets, const CrossEntropyOptions& options = {});

struct LossOptions {
  int64_t ignore_index = -100;
  std::string_view reduction = "mean";
};
/// -log_probs[target], with the classes in the last dim, as for cross_entropy.
Tensor nll_loss(const Arg& log_probs, const Arg& targets, const LossOptions& options = {});

/// (x - target)^2.
Tensor mse_loss(const Arg& x, const Arg& target, std::string_view reduction = "mean");
/// |x - target|.
Tensor l1_loss(const Arg& x, const Arg& target, std::string_view reduction = "mean");
/// -(t log sigmoid(x) + (1 - t) log(1 - sigmoid(x))) = (1 - t) x - log sigmoid(x).
Tensor binary_cross_entropy_with_logits(const Arg& x, const Arg& target, std::string_view reduction = "mean");

}  // namespace weft
