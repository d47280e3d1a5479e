// The global norm of all gradients, and clipping by it or by value.
#pragma once
#include <source_location>
#include <vector>

#include "framework/autodiff/grad.h"

namespace weft::optim {

/// Square root of the sum of all squares: an f32 scalar (f64 if every gradient is f64). Undefined entries count as
/// zeros.
Tensor grad_norm(const std::vector<Tensor>& grads, std::source_location loc = std::source_location::current());

struct ClippedGrads {
  Gradients grads;
  Tensor norm;  // before clipping
};
/// Scales all gradients by min(1, max_norm / (norm + 1e-6)), as PyTorch does.
ClippedGrads clip_grad_norm(const Gradients& grads, double max_norm,
                            std::source_location loc = std::source_location::current());

/// Each element limited to [-clip_value, clip_value].
Gradients clip_grad_value(const Gradients& grads, double clip_value,
                          std::source_location loc = std::source_location::current());

}  // namespace weft::optim
