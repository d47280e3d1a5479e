// Experts on every rank, cut by tensor parallelism, and spread over the ranks, side by side.
#pragma once
#include "tools/step/model_step.h"
#include "tools/study/report.h"

namespace weft::moe_study {

/// Plans the step over `ranks` ranks in each layout, and runs it `rounds` times on threads of this process; 0: nothing
/// runs. Throws UsageError for a model without experts, for ranks that do not divide the experts, and for steps that
/// exceed this machine's memory.
study::StudyReport layout_study(tools::StepChoice choice, int64_t ranks, int64_t rounds);

}  // namespace weft::moe_study
