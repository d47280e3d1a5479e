// The shapes of a model from the config.json of Hugging Face's transformers.
#pragma once
#include <string_view>

#include "tools/plan/shape.h"

namespace weft::planner {

/// Reads model_type gpt2, llama, mistral, gemma, qwen2, qwen3, mixtral, qwen2_moe, qwen3_moe and deepseek. Only sizes
/// are read: rotary, activation and routing settings do not change a cost. Throws InvalidArgument, naming `what` and
/// the field, for other models, and for what a shape does not have: latent attention, windows shorter than the context,
/// layers of experts between dense ones.
ModelShape hf_shape(std::string_view text, std::string_view what);

}  // namespace weft::planner
