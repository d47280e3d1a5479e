// Connectionist temporal classification: the loss of a sequence of labels whose places in time are unknown.
#pragma once
#include <initializer_list>
#include <string_view>
#include <vector>

#include "framework/dispatch/arg.h"

namespace weft {

struct CtcLossOptions {
  int64_t blank = 0;
  std::string_view reduction = "mean";  // "mean" divides each loss by its target's length (at least 1) first
  bool zero_infinity = false;           // a target too long for its input has loss 0 instead of infinity
};
/// -log of the probability of the targets under log_probs[T, N, C] (logarithms of probabilities), summed over all
/// alignments (Graves et al. 2006). targets: integers [N, S], of which the first target_lengths[n] count, or all
/// targets one after another, [sum of target_lengths]; input_lengths and target_lengths: integers [N]. One sequence:
/// log_probs[T, C], targets[S], lengths of shape [] or [1]. A length or a target out of range throws OutOfRange.
/// Differentiable, the gradient of an infinite loss is 0. Computed by a loop over T on the host: about 10 nodes for
/// each step of time in a compiled function, and about 10 small kernels eagerly. Targets in one piece need lengths
/// whose values can be read, so inside a compiled function they must be vectors.
Tensor ctc_loss(const Arg& log_probs, const Arg& targets, const Arg& input_lengths, const Arg& target_lengths,
                const CtcLossOptions& options = {});
Tensor ctc_loss(const Arg& log_probs, const Arg& targets, const std::vector<int64_t>& input_lengths,
                const std::vector<int64_t>& target_lengths, const CtcLossOptions& options = {});
/// The same for lengths in braces: {8} is one length, not a number.
inline Tensor ctc_loss(const Arg& log_probs, const Arg& targets, std::initializer_list<int64_t> input_lengths,
                       std::initializer_list<int64_t> target_lengths, const CtcLossOptions& options = {}) {
  return ctc_loss(log_probs, targets, std::vector<int64_t>(input_lengths), std::vector<int64_t>(target_lengths),
                  options);
}

}  // namespace weft
