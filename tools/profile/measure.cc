#include "tools/profile/measure.h"

#include <algorithm>
#include <vector>

namespace weft::profile {

StepRecord measure(const tools::StepChoice& choice, int64_t steps) {
  constexpr int kFirstSteps = 4;  // the first captures and compiles; the launches of the next three are timed
  tools::ModelStep step(choice);
  for (int i = 0; i < kFirstSteps; ++i) step.run();
  std::vector<double> seconds;
  for (int64_t i = 0; i < steps; ++i) seconds.push_back(step.run());
  const auto middle = seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2);
  std::nth_element(seconds.begin(), middle, seconds.end());
  StepRecord record = step.compiled().record();
  record.title = step.title();
  record.step_us = 1e6 * *middle;
  return record;
}

}  // namespace weft::profile
