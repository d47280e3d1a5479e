// The extra time of a mixture of experts over the dense model of equal active FLOPs: the difference of two records by
// cause.
#pragma once
#include <string>
#include <vector>

#include "models/moe/config.h"
#include "tools/profile/measure.h"
#include "tools/step/model_step.h"
#include "tools/study/report.h"

namespace weft::moe_study {

/// Milliseconds of a step by part. `same`: parts that the dense model contains too (attention, embedding, norms, head).
/// `host`: time without a launch.
struct Parts {
  double routing = 0, dispatch = 0, experts = 0, exchange = 0, update = 0, same = 0, host = 0;
  double sum() const { return routing + dispatch + experts + exchange + update + same + host; }
};
/// The parts of a record with measured times. `dim` and `hidden` are the last dims of a layer's tokens and of an
/// expert's hidden values: the shape of a launch's result selects its part in a layer with experts. A feed-forward
/// layer counts as experts.
Parts parts_of(const profiler::TimedStep& step, int64_t dim, int64_t hidden);

/// The extra time of launches of Parts::same in `step` over `dense`. Compares launches with equal counts, module,
/// phase, kind of work and results.
double slower_ms(const profiler::TimedStep& dense, const profiler::TimedStep& step, int64_t dim, int64_t hidden);

struct Cause {
  std::string name;
  double ms = 0;
};
/// The causes of the gap between a dense step and one with experts; `causes` and `rest` add up to the gap. `even`: the
/// step with equally loaded experts. `padding`: the share of computed rows without a token. `slower`: slower_ms().
struct Gap {
  double ms = 0;
  std::vector<Cause> causes;
  double rest = 0;  // time in `same` of launches that only one of the steps contains
};
Gap gap_of(const Parts& dense, const Parts& even, const Parts& step, double padding, double slower);

/// The configuration of the choice, moe_small if it names none. Throws UsageError for a configuration without experts.
moe::Config config_of(tools::StepChoice& choice);
/// The number of tokens of a step.
int64_t tokens_of(const tools::StepChoice& choice, const moe::Config& config);

/// Measures three steps in turn: dense, with evenly chosen experts, and the chosen step. Throws UsageError for a model
/// without experts.
study::StudyReport gap_study(tools::StepChoice choice, int64_t rounds);

}  // namespace weft::moe_study
