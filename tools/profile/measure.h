// The record of a model's step that runs here.
#pragma once
#include <cstdint>

#include "compiler/exec/record.h"
#include "tools/step/model_step.h"

namespace weft::profiler {

/// Runs the step until its launches are timed, and then `steps` times; step_us is the least of these, as a launch's
/// time is the least of its timed calls. `rank`: whose part of a step on a mesh; throws OutOfRange for others.
StepRecord measure(const tools::StepChoice& choice, int64_t steps, int rank = 0);

}  // namespace weft::profiler
