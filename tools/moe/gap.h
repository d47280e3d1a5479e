// Why a mixture of experts takes longer than the dense model of equal active FLOPs: the difference of two records by
// cause.
#pragma once
#include <string>
#include <vector>

#include "models/moe/config.h"
#include "tools/profile/measure.h"
#include "tools/step/model_step.h"
#include "tools/study/report.h"

namespace weft::moe_study {

/// Milliseconds of a step by part. `same` is what the dense model has too: attention, embedding, norms, head; `host`
/// what no launch covers.
struct Parts {
  double routing = 0, dispatch = 0, experts = 0, exchange = 0, update = 0, same = 0, host = 0;
  double sum() const { return routing + dispatch + experts + exchange + update + same + host; }
};
/// Of a record with measured times. `dim` and `hidden` are the last dims of a layer's tokens and of an expert's hidden
/// values: launches of a layer with experts count by the shape of their result. A feed-forward layer counts as experts.
Parts parts_of(const profiler::TimedStep& step, int64_t dim, int64_t hidden);

/// What launches of Parts::same take longer in `step` than in `dense`: those that both have as often, with equal
/// module, phase, kind of work and results.
double slower_ms(const profiler::TimedStep& dense, const profiler::TimedStep& step, int64_t dim, int64_t hidden);

struct Cause {
  std::string name;
  double ms = 0;
};
/// The causes of the gap between a dense step and one with experts; they and `rest` add up to it. `even`: with equally
/// loaded experts. `padding`: the share of computed rows that no token uses. `slower`: of slower_ms().
struct Gap {
  double ms = 0;
  std::vector<Cause> causes;
  double rest = 0;  // of `same`: launches that only one of the steps has
};
Gap gap_of(const Parts& dense, const Parts& even, const Parts& step, double padding, double slower);

/// The configuration of the choice, moe_small if it names none. Throws UsageError for one without experts.
moe::Config config_of(tools::StepChoice& choice);
/// The tokens of its step.
int64_t tokens_of(const tools::StepChoice& choice, const moe::Config& config);

/// Measures three steps in turn: dense, with experts that are chosen evenly, and as chosen. `route`: nn::ExpertChoice;
/// `capacity`: the configuration's capacity_factor. Throws UsageError for a model without experts.
study::Report gap_study(tools::StepChoice choice, const std::string& route, double capacity, int64_t rounds);

}  // namespace weft::moe_study
