#include "tools/plan/report/charts.h"

#include <algorithm>

#include "compiler/cost/collective_seconds.h"
#include "framework/base/error.h"
#include "tools/draw/chart.h"
#include "tools/plan/report/advice.h"
#include "tools/profile/table.h"

namespace weft::planner {
namespace {

using draw::Axis;
using draw::Chart;
using draw::Point;

}  // namespace

std::string curve_svg(const Workload& w) {
  const Limits limits = limits_of(w);
  std::vector<Point> compute, communication;
  double low = 1e300, high = 0;
  const double most = std::min<double>(
      kMostGpus, 4 * std::max({limits.communication, limits.batch, static_cast<double>(w.gpus), 16.0}));
  for (double n = 8; n <= most; n *= 1.1) {
    const int node = w.machine.links.node, whole = n > node ? node : 1;  // links idle in nodes that are not full
    const int gpus = std::max(1, static_cast<int>(n / whole + 0.5)) * whole;
    if (!compute.empty() && compute.back().x >= gpus) continue;
    const FsdpSeconds t = fsdp_seconds(w, gpus);
    compute.push_back({static_cast<double>(gpus), t.compute});
    communication.push_back({static_cast<double>(gpus), t.communication});
    for (const Point& p : {compute.back(), communication.back()}) low = std::min(low, p.y), high = std::max(high, p.y);
  }
  low /= 2, high *= 2;
  Chart chart(str_cat("A step of ", w.model.name, " on ", w.machine.name, ": compute and fully sharded communication"),
              {.label = "GPUs", .from = 8, .to = most, .base = 10},
              {.label = "seconds", .from = low, .to = high, .base = 10}, {.legend = 230});
  chart.line(compute, "compute");
  chart.line(communication, "gathers and scatters of fsdp");
  const auto limit = [&](double gpus, const char* label) {
    if (gpus <= 8 || gpus >= most) return;
    const Point ends[] = {{gpus, low}, {gpus, high}};
    chart.limit(ends, str_cat(label, ": ", static_cast<int64_t>(gpus + 0.5)));
  };
  limit(limits.communication, "communication limit");
  limit(limits.batch, "batch limit");
  const Point here[] = {{static_cast<double>(w.gpus), fsdp_seconds(w, w.gpus).compute}};
  if (w.gpus >= 8) chart.dots(here, str_cat(w.gpus, " GPUs"));
  return draw::svg({&chart, 1});
}

std::string collectives_svg(const Machine& m) {
  std::vector<Chart> panels;
  for (auto [kind, title] : {std::pair(Collective::kAllReduce, "all-reduce"), {Collective::kAllToAll, "all-to-all"}}) {
    std::vector<std::pair<std::string, std::vector<Point>>> lines;
    double high = 0;
    for (int nodes : {1, 2, 4, 8, 16, 32}) {
      const int ranks = nodes * m.links.node;
      std::vector<Point> line;
      for (double mib = 0.25; mib <= 8192; mib *= 2) {
        const double bytes = mib * (1 << 20),
                     bus = bytes * bus_factor(kind, ranks) / collective_seconds(kind, bytes, ranks, nodes, m) / 1e9;
        line.push_back({mib, bus});
        high = std::max(high, bus);
      }
      lines.emplace_back(profiler::count_text(nodes, "node"), std::move(line));
    }
    Chart chart(str_cat(title, " on ", m.name, ", nodes of ", m.links.node),
                {.label = "MiB", .from = 0.25, .to = 8192, .base = 2},
                {.label = "bus bandwidth, GB/s", .from = 0, .to = 1.1 * high});
    for (const auto& [label, line] : lines) chart.line(line, label);
    panels.push_back(std::move(chart));
  }
  return draw::svg(panels);
}

}  // namespace weft::planner
