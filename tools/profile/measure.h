// The record of a model's step that runs here.
#pragma once
#include <cstdint>
#include <vector>

#include "compiler/exec/profile.h"
#include "compiler/exec/record.h"
#include "tools/step/model_step.h"

namespace weft::profiler {

/// Runs the step `steps` times as it is and as often with its launches timed, in turn. step_us and the times of the
/// launches are those of the pair whose slower one took least time: both are from one calm moment, so that the launches
/// add up to a step. While such times are not comparable(), more pairs run, at most four times as many. The least times
/// of single launches would add up to less. The machine's rates are those of WEFT_MACHINE, or the better of two
/// measurements, before and after. `rank`: whose part of a step on a mesh; throws UsageError for others.
StepRecord measure(const tools::StepChoice& choice, int64_t steps, int rank = 0);

/// A record, and the time of its steps that no launch covers: between launches, for arguments and for results.
struct TimedStep {
  StepRecord record;
  double host_us = 0;
};
/// Several steps that run in turn, `rounds` times each as they are and with their launches timed, for differences
/// between them. step_us is the mean of the third of the rounds in which the step took least; the times of launches and
/// of the host are means over the third of the timed rounds that took least, so that they add up to a step.
std::vector<TimedStep> measure_in_turn(const std::vector<tools::StepChoice>& choices, int64_t rounds);

/// What happens during one step, after the first ones.
Profile trace(const tools::StepChoice& choice);

}  // namespace weft::profiler
