// Loads a trained model from a checkpoint, for inference.
#pragma once
#include <memory>
#include <string>

#include "models/data/tokenizer.h"
#include "models/nn/language_model.h"

namespace weft::train {

struct LoadedModel {
  std::unique_ptr<nn::LanguageModel> model;  // in eval mode
  std::shared_ptr<const data::Tokenizer> tokenizer;
};

/// The model of a checkpoint folder (or of the newest in a folder of checkpoints). `dtype` and `device` are the values
/// of the flags of these names: activations are computed in `dtype`, and all weights that layers would convert to it
/// are stored in it. Throws one sentence if the checkpoint is missing, damaged or of another family.
LoadedModel load_model(const nn::ModelFamily& family, const std::string& checkpoint, const std::string& dtype,
                       const std::string& device);

}  // namespace weft::train
