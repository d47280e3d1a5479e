// The model FLOPs that MFU counts, by one rule for every model: the products in the mathematics of a step. The FLOPs
// that kernels execute, including work that depends on values, are in StepRecord::sum().
#pragma once
#include "framework/ir/graph.h"

namespace weft::nn {

/// FLOPs of a training step with this forward graph: three times the forward's products, because the backward computes
/// two products for each forward product. Attention counts the scores that its mask leaves visible, or all scores if
/// the mask depends on data. For a causal transformer this is 6 for each token and each weight that multiplies it (no
/// embedding look-ups; only chosen experts), and 6 L H D (length + 1) for attention. The attention term is about half
/// of the count in Chowdhery et al. 2022 (PaLM), appendix B, which includes masked scores.
double training_flops(const Graph& forward);

}  // namespace weft::nn
