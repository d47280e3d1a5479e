// Training steps that the ahead-of-time test exports: an MLP with SGD, and a small GPT in f32 and in bf16 with dropout,
// AdamW and gradient clipping.
#pragma once
#include <functional>
#include <memory>
#include <string>

#include "weft.h"

namespace weft::aot_example {

using ExampleStep = std::function<Tensor(const Tensor&, const Tensor&)>;

/// The step of the example "mlp_step", "gpt_step" or "gpt_bf16_step", with its own newly initialised state.
Compiled<ExampleStep> make(const std::string& name);

}  // namespace weft::aot_example
