#include "tools/profile/measure.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <vector>

#include "compiler/cost/machine/rates.h"
#include "framework/base/error.h"
#include "framework/base/switches.h"
#include "framework/base/tracer.h"
#include "framework/cli/cli.h"
#include "tools/profile/rows.h"

namespace weft::profiler {
namespace {

constexpr int kFirstSteps = 4;  // the first captures and compiles; the launches of the next three are timed

// Microseconds of one step, on a mesh on one rank.
struct StepTimes {
  std::vector<double> launches, before;  // times of each launch, and of the gap before it
  double outside = 0;                    // before the first launch and after the last launch
};
StepTimes time_launches(tools::ModelStep& step, int rank) {
  internal::open_trace(internal::TraceWindow::kProfile, internal::bit_of(TraceEvent::kLaunch));
  StepTimes t{.outside = 1e6 * step.run()};
  const weft::internal::Trace trace = internal::collect_trace(internal::TraceWindow::kProfile);
  internal::close_trace(internal::TraceWindow::kProfile);
  int64_t first = 0, end = 0;  // launches may overlap; events are sorted by begin
  for (const TraceEvent& e : trace.events) {
    if (e.rank >= 0 && e.rank != rank) continue;
    if (t.launches.empty()) first = end = e.begin_ns;
    t.launches.push_back(static_cast<double>(e.end_ns - e.begin_ns) * 1e-3);
    t.before.push_back(static_cast<double>(std::max<int64_t>(0, e.begin_ns - end)) * 1e-3);
    end = std::max(end, e.end_ns);
  }
  t.outside -= static_cast<double>(end - first) * 1e-3;
  return t;
}

double sum(const std::vector<double>& v) { return std::accumulate(v.begin(), v.end(), 0.0); }

// The mean of the third of the rounds in which `total` is least.
template <class Row, class Total, class Add>
Row calm_mean(std::vector<Row> rounds, const Total& total, const Add& add_scaled) {
  std::sort(rounds.begin(), rounds.end(), [&](const Row& a, const Row& b) { return total(a) < total(b); });
  const size_t n = (rounds.size() + 2) / 3;
  Row mean{};
  for (size_t i = 0; i < n; ++i) add_scaled(mean, rounds[i], 1.0 / static_cast<double>(n));
  return mean;
}

void add_scaled(std::vector<double>& to, const std::vector<double>& from, double by) {
  to.resize(from.size());
  for (size_t k = 0; k < from.size(); ++k) to[k] += by * from[k];
}

}  // namespace

StepRecord measure(const tools::StepChoice& choice, int64_t steps, int rank) {
  tools::ModelStep step(choice);
  const int64_t ranks = choice.mesh.empty() ? 1 : dist::Mesh::parse(choice.mesh).size();
  if (rank < 0 || rank >= ranks) usage_error(str_cat("--rank is ", rank, "; need a rank of --mesh, which has ", ranks));
  const Machine before = rates_of(step.device());
  for (int i = 0; i < kFirstSteps; ++i) step.run();
  double step_us = 0;
  std::vector<double> fastest;
  constexpr int64_t kMore = 4;  // on a busy machine
  for (int64_t i = 0; i < steps || (i < kMore * steps && !comparable(step_us, sum(fastest))); ++i) {
    const double us = 1e6 * step.run();
    std::vector<double> launches = time_launches(step, rank).launches;
    if (fastest.empty() || std::max(us, sum(launches)) < std::max(step_us, sum(fastest)))
      step_us = us, fastest = std::move(launches);
  }
  if (choice.mesh.empty()) {
    step.compiled().count_work();
    step.run();
  }
  StepRecord record = step.compiled().record(rank);
  const bool given = step.device().type != DeviceType::kCpu || !switch_value("WEFT_MACHINE").empty();
  record.predict(given ? before : faster_of(before, measured_cpu()));
  WEFT_BUG_IF(fastest.size() != record.launches.size(), "profile: ", fastest.size(), " launches were timed of ",
              record.launches.size());
  for (size_t t = 0; t < fastest.size(); ++t) record.launches[t].measured_us = fastest[t];
  record.title = step.title();
  record.step_us = step_us;
  return record;
}

std::vector<TimedStep> measure_in_turn(const std::vector<tools::StepChoice>& choices, int64_t rounds) {
  constexpr int kRank = 0;  // the measured rank of a mesh
  std::vector<std::unique_ptr<tools::ModelStep>> steps;
  std::vector<std::vector<double>> whole(choices.size());
  std::vector<std::vector<StepTimes>> timed(choices.size());
  for (const tools::StepChoice& c : choices) {
    steps.push_back(std::make_unique<tools::ModelStep>(c));
    for (int i = 0; i < kFirstSteps; ++i) steps.back()->run();
  }
  for (int64_t round = 0; round < rounds; ++round)
    for (size_t i = 0; i < steps.size(); ++i) {
      whole[i].push_back(1e6 * steps[i]->run());
      timed[i].push_back(time_launches(*steps[i], kRank));
    }
  std::vector<TimedStep> result;
  for (size_t i = 0; i < steps.size(); ++i) {
    const StepTimes mean = calm_mean(
        timed[i], [](const StepTimes& t) { return sum(t.launches) + sum(t.before) + t.outside; },
        [](StepTimes& to, const StepTimes& from, double by) {
          add_scaled(to.launches, from.launches, by);
          add_scaled(to.before, from.before, by);
          to.outside += by * from.outside;
        });
    TimedStep r{.record = steps[i]->compiled().record(kRank), .host_us = mean.outside + sum(mean.before)};
    WEFT_BUG_IF(mean.launches.size() != r.record.launches.size(), "profile: ", mean.launches.size(),
                " launches were timed of ", r.record.launches.size());
    for (size_t k = 0; k < mean.launches.size(); ++k) r.record.launches[k].measured_us = mean.launches[k];
    r.record.title = steps[i]->title();
    r.record.step_us = calm_mean(
        whole[i], [](double us) { return us; }, [](double& to, double us, double by) { to += by * us; });
    result.push_back(std::move(r));
  }
  return result;
}

Profile trace(const tools::StepChoice& choice) {
  tools::ModelStep step(choice);
  for (int i = 0; i < kFirstSteps; ++i) step.run();
  return profile([&] { step.run(); }, 1);
}

}  // namespace weft::profiler
