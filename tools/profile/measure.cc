#include "tools/profile/measure.h"

#include <algorithm>
#include <cmath>

#include "compiler/cost/rates.h"
#include "framework/base/switches.h"
#include "framework/base/tracer.h"

namespace weft::profiler {
namespace {

constexpr int kFirstSteps = 4;  // the first captures and compiles; the launches of the next three are timed

// A step whose launches are timed, as all launches of traced steps are.
void run_timed(tools::ModelStep& step) {
  internal::open_trace(internal::TraceWindow::kProfile, internal::bit_of(TraceEvent::kLaunch));
  step.run();
  internal::close_trace(internal::TraceWindow::kProfile);
}

}  // namespace

StepRecord measure(const tools::StepChoice& choice, int64_t steps, int rank) {
  const Machine before = rates_of(Device::cpu());
  tools::ModelStep step(choice);
  for (int i = 0; i < kFirstSteps; ++i) step.run();
  double least = HUGE_VAL;
  for (int64_t i = 0; i < steps; ++i) {  // in turn, so that both find the machine at its best
    least = std::min(least, step.run());
    run_timed(step);
  }
  if (choice.mesh.empty()) {
    step.compiled().count_work();
    step.run();
  }
  StepRecord record = step.compiled().record(rank);
  record.predict(switch_value("WEFT_MACHINE").empty() ? faster_of(before, measured_cpu()) : before);
  record.title = step.title();
  record.step_us = 1e6 * least;
  return record;
}

Profile trace(const tools::StepChoice& choice) {
  tools::ModelStep step(choice);
  for (int i = 0; i < kFirstSteps; ++i) step.run();
  return profile([&] { step.run(); }, 1);
}

}  // namespace weft::profiler
