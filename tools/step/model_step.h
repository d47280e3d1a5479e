// The training step of a reference model, for tools that show it.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "compiler/options.h"
#include "framework/cli/cli.h"
#include "framework/mesh/plan.h"
#include "models/nn/transformer/language_model.h"
#include "models/optim/optimizers/adamw.h"
#include "weft.h"

namespace weft::tools {

/// The choice of a step.
struct StepChoice {
  std::string model = "gpt";  // the name of a family
  std::string config;         // a preset of the model; empty: its default
  Settings fields = {};       // fields of the preset with other values
  File checkpoint;            // a folder that a train program wrote, with model and configuration; empty: none
  int64_t batch_size = 8;
  int64_t seq_len = 0;  // 0: the model's context, 128 at most
  std::string dtype = "f32";
  std::string mesh;          // "dp2,tp2"; empty: one device
  int64_t microbatches = 0;  // 0: 1, with pp default_microbatches()
  dist::Plan plan;           // how the mesh is used
  std::string device = "cpu";
  bool forward = false;  // the loss alone: no gradients, no optimiser
};

/// The family of this name. Throws UsageError, naming the choices, for another name; if a checkpoint has the name,
/// Error.
const nn::ModelFamily& family_of(const std::string& name, const std::string& checkpoint = "");
/// The preset of --config, or the family's default if `config` is empty, with these fields. Throws UsageError, naming
/// the choices, for an unknown preset or field.
nn::ConfigMap config_of(const nn::ModelFamily& family, const std::string& config, const Settings& fields);

/// The flags that set a choice, without the device: only programs that run the step have its flag.
Flags step_flags(StepChoice& choice);

/// A model with its optimiser and its compiled step (tokens, targets) -> loss.
class ModelStep {
 public:
  /// Makes the step on the chosen device, or on `instead`. On meta, a step of any size is planned without its memory
  /// and cannot run. Throws UsageError, naming the choices, for an unknown model, preset, dtype, device or mesh.
  explicit ModelStep(const StepChoice& choice, std::optional<Device> instead = {});
  ModelStep(const ModelStep&) = delete;
  using Fn = std::function<Tensor(const Tensor&, const Tensor&)>;
  /// Captures and plans the step; nothing runs.
  void prepare();
  /// Runs one step on random tokens and returns its seconds, without the time to make the tokens.
  double run();
  const Compiled<Fn>& compiled() const { return *step_; }
  /// "gpt gpt_tiny, batch 8 of 64 tokens, f32".
  const std::string& title() const { return title_; }
  Device device() const { return device_; }

 private:
  std::unique_ptr<nn::LanguageModel> model_;
  std::unique_ptr<optim::AdamW> opt_;
  std::unique_ptr<Compiled<Fn>> step_;
  Device device_;
  Shape shape_;  // shape of the tokens
  std::string title_;
};

/// A model's forward pass in evaluation mode.
struct ForwardPass {
  std::unique_ptr<nn::LanguageModel> model;  // on the CPU, with the checkpoint's weights if there is a checkpoint
  Ref<Graph> graph;                          // tokens i64[batch, time] -> logits [batch, time, vocab]
};
/// Captures the forward pass; nothing runs. Throws the errors of ModelStep.
ForwardPass forward_pass(const StepChoice& choice);

}  // namespace weft::tools
