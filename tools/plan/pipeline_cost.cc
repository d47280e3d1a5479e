#include "tools/plan/pipeline_cost.h"

#include <algorithm>
#include <cmath>

#include "distributed/pipeline/schedules.h"
#include "framework/base/error.h"

namespace weft::planner {

static double d(int64_t n) { return static_cast<double>(n); }

double bubble_seconds(const std::string& schedule, int ranks, int v, double f, double i, double w) {
  const double n = ranks - 1;
  if (schedule == "gpipe" || schedule == "1f1b") return n * (f + i + w);
  if (schedule == "interleaved_1f1b") return n * (f + i + w) / v;
  if (schedule == "zb_h1") return n * std::max({f, i, f + i - w});
  if (schedule == "zb_2p") return n * std::max({f, i - f, f + i - 2 * w});
  // The paths of the tables that go down the ranks and up again, less the work of a rank; half a rank's time each.
  if (schedule == "zb_v")
    return std::max({n * i, 2 * n * (i - w), i + (n - 1) * w, f + (n - 1) * w, (2 * n - 1) * f - (n - 1) * i,
                     (2 * n - 1) * f + i - 2 * n * w, 2 * n * f - n * i - w, 2 * n * f - (2 * n + 1) * w}) /
           2;
  WEFT_CHECK(schedule == "dualpipe_v", "schedule: got '", schedule, "'; need one of ",
             dist::pipeline::schedule_names());
  return std::max({n * f, n * i - f, n * (f + i - w), n * (2 * i - w) - f, n * (2 * f - i - w), 2 * n * (f - w)}) / 2;
}

double alive_microbatches(const std::string& schedule, int p, int v, int64_t m, int rank) {
  double alive = p;
  if (schedule == "gpipe") alive = d(m);
  if (schedule == "1f1b") alive = p - rank;
  if (schedule == "interleaved_1f1b") alive = ((v - 1.0) * p + 2 * (p - 1.0 - rank) + 1) / v;
  if (schedule == "zb_2p") alive = 2 * p - 1;
  if (schedule == "dualpipe_v") alive = p + 0.5;
  return std::min(alive, d(m));
}

std::vector<int64_t> stage_layers(int64_t layers, double head, int stages) {
  double least = 1e300;
  int64_t last = layers / stages;
  for (int64_t n = 0; stages > 1 && n <= (layers + stages - 1) / stages; ++n) {
    const double most = std::max(std::ceil(d(layers - n) / (stages - 1)), d(n) + head);
    if (most < least) least = most, last = n;
  }
  if (stages > 1 && last == 0 && layers >= stages) last = 1;
  std::vector<int64_t> all(static_cast<size_t>(stages), last);
  for (int k = 0; k + 1 < stages; ++k)
    all[k] = (layers - last) * (k + 1) / (stages - 1) - (layers - last) * k / (stages - 1);
  return all;
}

}  // namespace weft::planner
