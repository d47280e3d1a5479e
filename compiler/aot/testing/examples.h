// Training steps that the ahead-of-time test exports: an MLP with SGD, a small GPT with dropout, AdamW and a clipped
// gradient, and the same in bf16.
#pragma once
#include <functional>
#include <memory>
#include <string>

#include "weft.h"

namespace weft::aot_example {

using Step = std::function<Tensor(const Tensor&, const Tensor&)>;

/// A step of the example "mlp_step", "gpt_step" or "gpt_bf16_step" over its own state, freshly initialised.
Compiled<Step> make(const std::string& name);

}  // namespace weft::aot_example
