// Experts on every rank beside experts that are spread over the ranks.
#pragma once
#include "tools/step/model_step.h"
#include "tools/study/report.h"

namespace weft::moe_study {

/// Plans the step over dp, tp and ep of so many ranks; nothing runs. Throws UsageError for a model without experts, and
/// for ranks that do not divide them.
study::Report layout_study(tools::StepChoice choice, int64_t ranks);

}  // namespace weft::moe_study
