// The smallest model that tests of training programs train.
#pragma once
#include "models/nn/transformer/language_model.h"

namespace weft::testing {

/// A gpt with one preset, "tiny": one layer of 16 values, with dropout.
const nn::ModelFamily& tiny_family();

}  // namespace weft::testing
