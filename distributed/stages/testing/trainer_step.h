// For tests: joint graphs with a loop over microbatches (among them the training step of a reference model), and their
// values by the interpreter.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "distributed/stages/microbatch.h"
#include "models/nn/transformer/language_model.h"
#include "ops/core/functions/body.h"
#include "weft.h"

namespace weft::testing {

/// The joint graph of a function, with the loop of accumulate(), as dist::compile makes it on a mesh with "pp".
Ref<Graph> joint_for_stages(const TensorFn& fn, const std::vector<Tensor>& args);

/// A step of the trainer with --microbatches, and arguments for it. The model's cells have their initial values.
struct TrainerStep {
  std::unique_ptr<nn::LanguageModel> model;
  std::unique_ptr<optim::AdamW> optimizer;
  std::vector<Tensor> args;  // tokens and targets
  TensorFn fn;  // function of args; returns loss, gradient norm, and the statistics of the mixture of experts
  Ref<Graph> joint;
};
/// `changes`: changes to the preset.
TrainerStep trainer_step(const nn::ModelFamily& family, const std::string& preset, int64_t microbatches,
                         const nn::ConfigMap& changes = {});

/// The results of a step, then the new values of the cells that it writes. Also writes these cells.
std::vector<Tensor> interpreted(const Graph& joint, std::span<const Tensor> args);

/// Runs the graph of one microbatch node by node.
class MicrobatchValues {
 public:
  MicrobatchValues(const Graph& joint, const dist::Microbatch& m, std::span<const Tensor> args);
  /// Arguments, slices of microbatch k, cells and captured tensors.
  internal::BodyValues leaves(int64_t k) const;
  /// The results of interpreted(), from values that contain all results.
  std::vector<Tensor> results(const internal::BodyValues& values) const;

 private:
  const dist::Microbatch& m_;
  const std::vector<Tensor> args_;
  std::vector<Tensor> batch_;  // index: slice; stacked
};

}  // namespace weft::testing
