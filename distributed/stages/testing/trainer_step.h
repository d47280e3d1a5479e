// For tests: joint graphs with a loop over microbatches, and the training step of a reference model as one.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "models/nn/language_model.h"
#include "weft.h"

namespace weft::testing {

/// The joint graph of a function, with the loop of accumulate(), as dist::compile makes it on a mesh with "pp".
Ref<Graph> joint_for_stages(const TensorFn& fn, const std::vector<Tensor>& args);

/// A step of the trainer with --grad_accum, and arguments for it. The model's cells have their initial values.
struct TrainerStep {
  std::unique_ptr<nn::LanguageModel> model;
  std::unique_ptr<optim::AdamW> optimizer;
  std::vector<Tensor> args;  // tokens and targets
  Ref<Graph> joint;
};
/// `changes`: to the preset.
TrainerStep trainer_step(const nn::ModelFamily& family, const std::string& preset, int64_t microbatches,
                         const nn::ConfigMap& changes = {});

}  // namespace weft::testing
