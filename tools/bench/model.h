// The language models whose training step is measured: presets of the families, which pytorch/train_step.py contains
// weight for weight.
#pragma once
#include <memory>
#include <string>

#include "models/nn/transformer/language_model.h"
#include "weft.h"

namespace weft::bench {

struct Decoder {
  std::shared_ptr<nn::LanguageModel> model;
  int64_t batch;  // sequences of a step

  /// Random tokens or targets of a step.
  Tensor tokens() const { return randint(0, model->vocab(), {batch, model->context()}); }
};

/// gpt_tiny, gpt_base or moe_small, with these fields of its configuration; throws, listing the names, for any other
/// name.
Decoder make_decoder(const std::string& name, const nn::ConfigMap& fields = {});

}  // namespace weft::bench
