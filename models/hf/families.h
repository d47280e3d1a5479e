// The model families of this repository, for load_hf() and tools. A new family is its folder and a row here.
#pragma once
#include "models/nn/transformer/language_model.h"

namespace weft {

/// All families, in the order in which programs list them.
const std::vector<const nn::ModelFamily*>& model_families();

}  // namespace weft
