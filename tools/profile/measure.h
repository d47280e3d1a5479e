// Measures the record of a model's step.
#pragma once
#include <cstdint>
#include <vector>

#include "compiler/exec/record/profile.h"
#include "compiler/exec/record/record.h"
#include "tools/step/model_step.h"

namespace weft::profiler {

/// Runs `steps` pairs of steps: one step without timed launches, and one with timed launches. step_us and the times of
/// launches come from the pair whose slower step took least time, so that other work disturbed both steps little and
/// the launches add up to a step. (The least times of single launches would add up to less.) While these times are not
/// comparable(), more pairs run, up to 4 * steps. The machine's rates come from WEFT_MACHINE, or from the better of two
/// measurements before and after. `rank`: the measured rank of a mesh; throws UsageError for a rank outside the mesh.
StepRecord measure(const tools::StepChoice& choice, int64_t steps, int rank = 0);

/// A record, and the time of its steps outside launches: between launches, for arguments and for results.
struct TimedStep {
  StepRecord record;
  double host_us = 0;
};
/// Runs several steps in turn for differences between them, each `rounds` times without and `rounds` times with timed
/// launches. step_us is the mean over the fastest third of the rounds. The times of launches and of the host are means
/// over the fastest third of the timed rounds, so that they add up to a step.
std::vector<TimedStep> measure_in_turn(const std::vector<tools::StepChoice>& choices, int64_t rounds);

/// The events of one step after the first steps.
Profile trace(const tools::StepChoice& choice);

}  // namespace weft::profiler
