// The shapes of a model from the config.json of Hugging Face's transformers.
#pragma once
#include <string_view>

#include "tools/plan/shape.h"

namespace weft::planner {

/// Reads model_type gpt2, llama, mistral, qwen2, qwen3, mixtral, qwen3_moe, and others with llama's fields. Only sizes
/// are read: weights, rotary and activation settings do not change a cost. Throws InvalidArgument, naming `what` and
/// the field.
ModelShape hf_shape(std::string_view text, std::string_view what);

}  // namespace weft::planner
