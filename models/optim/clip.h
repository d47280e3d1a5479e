// The global norm of all gradients, and clipping by it or by value.
#pragma once
#include <concepts>
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

// Errors: the gradients are not in the parameters.
#define WEFT_NO_CLIP(Result, name, write)                                                                 \
  template <std::same_as<Parameter> P, class... A>                                                        \
  Result name(const std::vector<P>&, A...) {                                                              \
    static_assert(sizeof...(A) > 99, #name ": got parameters; need gradients, which are values: " write); \
    return {};                                                                                            \
  }
WEFT_NO_CLIP(Tensor, grad_norm, "write optim::grad_norm(grad(loss, model.parameters()))")
WEFT_NO_CLIP(
    ClippedGrads, clip_grad_norm,
    "write auto [grads, norm] = optim::clip_grad_norm(grad(loss, model.parameters()), 1.0) and opt.step(grads)")
WEFT_NO_CLIP(Gradients, clip_grad_value, "write opt.step(optim::clip_grad_value(grad(loss, model.parameters()), 1.0))")
#undef WEFT_NO_CLIP

}  // namespace weft::optim
