// Sizes of a run that are refused before it begins, by an error that names their flag: sizes that the model does not
// have, and sizes that need more memory than this host has, whatever the plan is.
#pragma once
#include <cstdint>
#include <string>

#include "models/nn/transformer/language_model.h"
#include "models/train/options.h"

namespace weft::train {

/// Throws UsageError that names `flag` if the tokens of a step of `rows` sequences of `length` tokens do not fit in
/// `memory` bytes; -1: unknown.
void check_batch_fits(const char* flag, int64_t rows, int64_t length, int64_t memory);
/// The memory that this host has for the state of a run; -1: unknown, or a part of the state is elsewhere.
int64_t memory_of_state(Device device);
/// Throws UsageError if the weights and the moments of the optimizer do not fit in `memory` bytes; -1: unknown.
void check_model_fits(const TrainOptions& options, const Setup& setup, const nn::LanguageModel& model, int64_t memory);
/// Throws UsageError if a sequence is longer than the context of the model, in tokens.
void check_length(const TrainOptions& options, int64_t context);
/// Throws UsageError if the model has fewer tokens than the tokenizer of a text, which has `need`.
void check_vocabulary(const TrainOptions& options, const Setup& setup, const nn::LanguageModel& model, int64_t need);

}  // namespace weft::train
