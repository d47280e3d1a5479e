// TrainSteps: a small model of a family in training, for tests: the model, AdamW and one compiled step (loss, gradients
// clipped to norm 1, guarded update, experts balanced; f16 with the trainer's loss scaling). Same seed, same run.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "models/nn/transformer/language_model.h"
#include "weft.h"

namespace weft::testing {

/// The model: the family's default preset with `changes`, and activations in `dtype`.
struct TrainCase {
  const char* name;
  const nn::ModelFamily& family;
  nn::ConfigMap changes = {};
  std::optional<DType> dtype = {};
};

/// Options of the training. Changes of the test case override `size`.
struct TrainHow {
  nn::ConfigMap size = {{"vocab", "64"}, {"context", "16"}, {"layers", "2"}, {"heads", "2"}, {"dim", "32"}};
  int64_t batch = 4;
  Device device = Device::cpu();
  CompileOptions compile = {};
  optim::AdamWOptions adamw = {.lr = 1e-2};
  DType weights = kFloat32;  // kFloat64: everything in f64, from the f32 run's own initial values
  double loss_scale = 1024;  // initial loss scale of f16 runs
  /// Changes the gradients before they are clipped: the deliberate faults of tests.
  std::function<void(const std::vector<Parameter>&, std::vector<Tensor>&)> tamper = {};
};

/// The results of a step, all 0-d but expert_load [E] (0 elements without experts).
struct StepOut {
  Tensor loss, ce, norm, expert_load, ok;
};

class TrainSteps {
 public:
  TrainSteps(const TrainCase& c, TrainHow how);
  TrainSteps(const TrainSteps&) = delete;

  /// Random tokens i64[batch, context + 1] on the CPU, drawn after the model is made.
  const Tensor& text() const { return text_; }
  /// One step on a text of this shape, on any device: the model reads all but the last token of each row.
  StepOut step(const Tensor& text);
  StepOut step() { return step(text_); }

  nn::LanguageModel& model() { return *model_; }
  optim::AdamW& optimizer() { return *optimizer_; }
  CompileStats stats() const { return step_->stats(); }
  std::string report() const { return step_->report(); }
  double loss_scale() const { return scaler_->get_scale(); }
  /// The parameters' values, detached.
  std::vector<Tensor> parameters() const;
  /// Values of all cells of model and optimiser, on the CPU, as f32.
  std::vector<std::vector<float>> cells() const;

 private:
  StepOut train(const Tensor& tokens, const Tensor& targets);

  struct TrainFn {
    TrainSteps* of;
    StepOut operator()(Tensor tokens, Tensor targets) const { return of->train(tokens, targets); }
  };
  TrainHow how_;
  std::unique_ptr<nn::LanguageModel> model_;
  std::optional<optim::AdamW> optimizer_;
  std::optional<optim::GradScaler> scaler_;  // f16
  Tensor text_;
  std::optional<Compiled<TrainFn>> step_;
};

}  // namespace weft::testing
