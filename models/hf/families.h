// The model families of this repository, for load_hf() and tools. A new family is its folder and a row here.
#pragma once
#include "models/nn/transformer/language_model.h"

namespace weft {

/// All families, in the order in which programs list them.
const std::vector<const nn::ModelFamily*>& model_families();

/// Their names.
std::vector<std::string> family_names();

/// The family named `name`, or null.
const nn::ModelFamily* find_family(std::string_view name);

/// The family named `name`. Throws kInvalidArgument "WHAT is 'NAME'; need one of" and all names if there is none.
const nn::ModelFamily& family_named(std::string_view name, std::string_view what = "the model family");

}  // namespace weft
