// The memory that a run needs whatever its plan is, compared with the memory of this host: sizes that no host has are
// refused before the run begins, and the error names their flag.
#pragma once
#include <cstdint>
#include <string>

#include "models/nn/transformer/language_model.h"
#include "models/train/options.h"

namespace weft::train {

/// Throws UsageError if the tokens of a step of `length` tokens a sequence do not fit in `memory` bytes; -1: unknown.
void check_batch_fits(const TrainOptions& options, int64_t length, int64_t memory);
/// The memory that this host has for the state of a run; -1: unknown, or a part of the state is elsewhere.
int64_t memory_of_state(Device device);
/// Throws UsageError if the weights and the moments of the optimizer do not fit in `memory` bytes; -1: unknown.
void check_model_fits(const TrainOptions& options, const Setup& setup, const nn::LanguageModel& model, int64_t memory);

}  // namespace weft::train
