#include "tools/profile/measure.h"

#include <algorithm>
#include <cmath>

namespace weft::profiler {

StepRecord measure(const tools::StepChoice& choice, int64_t steps, int rank) {
  constexpr int kFirstSteps = 4;  // the first captures and compiles; the launches of the next three are timed
  tools::ModelStep step(choice);
  for (int i = 0; i < kFirstSteps; ++i) step.run();
  double least = HUGE_VAL;
  for (int64_t i = 0; i < steps; ++i) least = std::min(least, step.run());
  if (choice.mesh.empty()) {
    step.compiled().count_work();
    step.run();
  }
  StepRecord record = step.compiled().record(rank);
  record.title = step.title();
  record.step_us = 1e6 * least;
  return record;
}

}  // namespace weft::profiler
