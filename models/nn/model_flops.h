// The model FLOPs that MFU counts, by one rule for every model: the products that the mathematics of a step needs, not
// the operations that kernels execute. Those, with the work that depends on values, are in StepRecord::sum().
#pragma once
#include "framework/ir/graph.h"

namespace weft::nn {

/// FLOPs of a training step with this forward graph: three times the forward's products, because the backward computes
/// two products for each of them. Attention counts the scores that its mask leaves visible, or all of them if the mask
/// depends on data. For a causal transformer this is 6 for each token and each weight that multiplies it (no embedding
/// look-ups; of experts the chosen ones), and 6 L H D (length + 1) for attention: about half of what Chowdhery et al.
/// 2022 (PaLM), appendix B count, who include masked scores.
double training_flops(const Graph& forward);

}  // namespace weft::nn
