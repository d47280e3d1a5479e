// A trained model from a checkpoint, ready to be read.
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

/// The model of a checkpoint folder (or the newest of a folder of them), computing in `dtype` on `device` (flags of
/// those names). Throws one sentence on a missing or damaged checkpoint or one of another family.
LoadedModel load_model(const nn::ModelFamily& family, const std::string& checkpoint, const std::string& dtype,
                       const std::string& device);

}  // namespace weft::train
