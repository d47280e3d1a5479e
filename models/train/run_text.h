// What a run prints and saves about itself: its size, its plan, its profile, and the flags that its checkpoints record.
#pragma once
#include <map>
#include <string>

#include "compiler/exec/record/profile.h"
#include "distributed/plan/report.h"
#include "models/nn/transformer/language_model.h"
#include "models/train/metrics.h"
#include "models/train/options.h"

namespace weft::train {

/// The flags that change the result, for checkpoints: by name. `tokenizer` is the name of the tokenizer.
std::map<std::string, std::string> run_flags(const TrainOptions& options, const Setup& setup,
                                             const nn::ModelFamily& family, const std::string& tokenizer);
/// Prints the flags of a run that resumes whose value was another one in its checkpoint.
void print_new_values(const std::map<std::string, std::string>& before, const std::map<std::string, std::string>& now);
/// Prints the model, the size of a step and the processor, before the first step. `step`: steps that are done.
void announce(const TrainOptions& options, const Setup& setup, const std::string& family, int64_t parameters,
              int64_t tokens, int64_t step);
/// "step 7: the loss is nan and nothing was changed; ".
std::string nonfinite_text(const StepMetrics& metrics);
/// Saves and prints the plan before the first step, as the flags say. `memory_bytes`: MemorySaver::host_bytes().
void report_plan(const dist::PlanReport& report, const TrainOptions& options, const Setup& setup, int64_t memory_bytes);
/// Saves the profile of all processes up to step `last`. A trace that cannot be written does not end the run. A
/// collective.
void save_profile(const Profile& mine, const TrainOptions& options, const Setup& setup, int64_t last,
                  Progress& progress);

}  // namespace weft::train
