// Losses of classification and of differences; loss_likelihood.h, loss_margin.h and ctc_loss.h have the others. In f32
// for 16-bit floats; the result is then f32, because a loss must not be rounded to 8 bits. In f64 if x or the target is
// f64, as PyTorch promotes them.
// reduction is "mean", "sum" or "none".
#pragma once
#include <optional>
#include <string_view>

#include "framework/dispatch/arg.h"

namespace weft {

struct CrossEntropyOptions {
  int64_t ignore_index = -100;          // targets with this value are ignored
  double label_smoothing = 0;           // s: targets are (1 - s) onehot + s / C (Szegedy et al. 2015, arXiv:1512.00567)
  std::string_view reduction = "mean";  // over the targets that count; NaN if there are none, as in PyTorch
  double z_loss = 0;                    // adds z_loss * logsumexp(logits)^2 (Chowdhery et al. 2022, arXiv:2204.02311)
  Tensor weight = {};                   // [C]: multiplies the loss of each class
  std::optional<int64_t> dim = {};      // dim of the classes; see cross_entropy
};
/// -log softmax(logits)[target], of integer targets in [0, C) or of probabilities of a floating-point dtype. The
/// classes are the last dim of the logits: [..., C] with targets [...], or with probabilities [..., C]. In PyTorch they
/// are dim 1, which is the same for two dims: for [N, C, d...] give {.dim = 1}; targets are then [N, d...], or
/// probabilities [N, C, d...]. If logits of more than two dims fit the targets both ways and dim is not given, a
/// warning says so. A target out of range throws OutOfRange with its position. If `weight` is given, the mean of class
/// targets is weighted, as in PyTorch.
Tensor cross_entropy(const Arg& logits, const Arg& targets, const CrossEntropyOptions& options = {});

struct LossOptions {
  int64_t ignore_index = -100;
  std::string_view reduction = "mean";
  Tensor weight = {};               // [C]
  std::optional<int64_t> dim = {};  // dim of the classes
};
/// -log_probs[target], with the classes in the last dim or in dim, as for cross_entropy.
Tensor nll_loss(const Arg& log_probs, const Arg& targets, const LossOptions& options = {});

/// (x - target)^2.
Tensor mse_loss(const Arg& x, const Arg& target, std::string_view reduction = "mean");
/// |x - target|.
Tensor l1_loss(const Arg& x, const Arg& target, std::string_view reduction = "mean");
/// d^2 / 2 where |d| = |x - target| < delta, otherwise delta (|d| - delta / 2); delta > 0 (Huber 1964).
Tensor huber_loss(const Arg& x, const Arg& target, std::string_view reduction = "mean", double delta = 1);
/// d^2 / (2 beta) where |d| = |x - target| < beta, otherwise |d| - beta / 2; beta = 0 gives l1_loss.
Tensor smooth_l1_loss(const Arg& x, const Arg& target, std::string_view reduction = "mean", double beta = 1);

struct BinaryCrossEntropyOptions {
  Tensor weight = {};                   // multiplies the loss of each element; broadcasts to x
  std::string_view reduction = "mean";  // over the number of elements, whatever the weights are
  Tensor pos_weight = {};               // multiplies the part of the positive class; broadcasts to x. Logits only
};
/// -(t log sigmoid(x) + (1 - t) log(1 - sigmoid(x))).
Tensor binary_cross_entropy_with_logits(const Arg& x, const Arg& target, std::string_view reduction = "mean");
Tensor binary_cross_entropy_with_logits(const Arg& x, const Arg& target, const BinaryCrossEntropyOptions& options);
/// -(t log x + (1 - t) log(1 - x)) for probabilities x in [0, 1], NaN for others. As in PyTorch, a logarithm is at
/// least -100, and the gradient is (x - t) / max(x (1 - x), 1e-12). From logits, use the function above. A target of
/// f64 needs x of f64, as in PyTorch.
Tensor binary_cross_entropy(const Arg& x, const Arg& target, std::string_view reduction = "mean");
Tensor binary_cross_entropy(const Arg& x, const Arg& target, const BinaryCrossEntropyOptions& options);

}  // namespace weft
