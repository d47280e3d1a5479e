// The shapes of a model from the config.json of Hugging Face's transformers.
#pragma once
#include <string>
#include <string_view>

#include "tools/plan/shape.h"

namespace weft::planner {

/// The values of model_type that are read: "gpt2, llama, ...".
std::string hf_model_types();

/// Reads a config.json of one of them. Only sizes are read: rotary, activation and routing settings do not change a
/// cost. Throws InvalidArgument, naming `what` and the field, for other models, for sizes that transformers refuses,
/// and for what a shape does not have: latent attention, windows shorter than the context, layers of experts between
/// dense ones.
ModelShape hf_shape(std::string_view text, std::string_view what);

}  // namespace weft::planner
