// The shapes of a model from the config.json of Hugging Face's transformers.
#pragma once
#include <string>
#include <string_view>

#include "tools/plan/model/shape.h"

namespace weft::planner {

/// The supported values of model_type: "gpt2, llama, ...".
std::string hf_model_types();

/// Reads a config.json of a supported model. Reads only sizes: rotary, activation and routing settings do not change a
/// cost. Throws InvalidArgument, naming `what` and the field, for other models, for sizes that transformers refuses,
/// and for models that a shape cannot describe: latent attention, windows shorter than the context, layers of experts
/// between dense layers.
ModelShape hf_shape(std::string_view text, std::string_view what);

}  // namespace weft::planner
