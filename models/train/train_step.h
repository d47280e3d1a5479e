// The training step of all families: forward, backward and optimiser, captured as one graph over all microbatches.
#pragma once
#include <functional>
#include <vector>

#include "models/nn/transformer/language_model.h"
#include "models/optim/optim.h"

namespace weft::train {

struct StepOut {
  Tensor loss, grad_norm, ok, aux, expert_counts, dropped;  // ok: loss and norm are finite; otherwise no cell changes
};

using StepFn = std::function<StepOut(Tensor tokens, Tensor targets)>;

/// The objects with the cells of a step. All outlive it.
struct StepParts {
  const nn::LanguageModel& model;
  optim::AdamW& optimizer;
  optim::GradScaler* scaler;  // null: the gradients are not scaled
  const Buffer& healthy;      // if defined, false after the first failed step: later steps do not commit
  const std::vector<Parameter>& parameters;
  int64_t microbatches;
};

StepOut train_step(const StepParts& parts, const Tensor& tokens, const Tensor& targets);

}  // namespace weft::train
