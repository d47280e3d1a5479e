#include "tools/plan/charts.h"

#include <algorithm>
#include <cmath>

#include "compiler/cost/collective_seconds.h"
#include "framework/base/error.h"
#include "tools/draw/chart.h"
#include "tools/plan/advice.h"

namespace weft::planner {
namespace {

using draw::Axis;
using draw::Chart;
using draw::Point;

constexpr int kTimelineLayers = 6;

}  // namespace

std::string curve_svg(const Workload& w) {
  const Limits limits = limits_of(w);
  std::vector<Point> compute, communication;
  double low = 1e300, high = 0;
  const double most = 4 * std::max({limits.communication, limits.batch, static_cast<double>(w.gpus), 16.0});
  const double n = static_cast<double>(w.model.parameters()), bytes = static_cast<double>(itemsize(w.activations));
  for (double gpus = 8; gpus <= most; gpus *= 1.1) {
    compute.push_back({gpus, dist::train_compute_seconds(n, w.tokens(), limits.flops, gpus)});
    communication.push_back({gpus, dist::fsdp_comm_seconds(n, bytes, limits.bandwidth)});
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
  const Point here[] = {
      {static_cast<double>(w.gpus), dist::train_compute_seconds(n, w.tokens(), limits.flops, w.gpus)}};
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
      lines.emplace_back(str_cat(nodes, nodes == 1 ? " node" : " nodes"), std::move(line));
    }
    std::vector<Point> points;
    if (m.name == "h100-sxm" && kind == Collective::kAllReduce) {
      // V14 to V17: 480 GB/s within a node, 320 to 350 over 16 nodes.
      points = {{1024, 480}, {8192, 320}, {8192, 350}};
      high = std::max(high, 480.0);
    }
    Chart chart(str_cat(title, " on ", m.name, ", nodes of ", m.links.node),
                {.label = "MiB", .from = 0.25, .to = 8192, .base = 2},
                {.label = "bus bandwidth, GB/s", .from = 0, .to = 1.1 * high});
    for (const auto& [label, line] : lines) chart.line(line, label);
    if (!points.empty()) {
      chart.dots(points, "measured");
      chart.note(points[0], "1 node");
      chart.note(points[1], "16 nodes");
    }
    panels.push_back(std::move(chart));
  }
  return draw::svg(panels);
}

std::string timeline_svg(const Workload& whole) {
  Workload w = whole;
  w.async_tp = false;
  const int64_t layers = std::min<int64_t>(w.model.layers, kTimelineLayers);
  w.model.layers = layers;
  w.model.dense_layers = std::min(w.model.dense_layers, layers);
  const int tp = static_cast<int>(std::min<int64_t>({w.machine.links.node, w.model.kv_heads, w.gpus}));
  w.gpus -= w.gpus % tp;
  w.batch = w.gpus;  // a sequence for each GPU
  struct Kind {
    const char* name;
    Candidate candidate;
  };
  const Kind kinds[] = {{"DDP", {.dp = w.gpus}},
                        {"ZeRO-1", {.dp = w.gpus, .zero = 1}},
                        {"ZeRO-3", {.fsdp = w.gpus, .zero = 3}},
                        {"tp and DDP", {.dp = w.gpus / tp, .tp = tp, .microbatches = tp}}};
  double last = 0;
  std::vector<Timeline> lines;
  std::vector<std::string> titles;
  for (const Kind& k : kinds) {
    lines.push_back(step_timeline(w, k.candidate));
    const StepCost c = step_cost(w, k.candidate);
    if (k.candidate.zero == 1) {  // the new weights, when all gradients are reduced
      Timeline& t = lines.back();
      const double rest = c.exposed_data - t.exposed, from = t.seconds;
      t.spans.push_back({TimelineSpan::kNetwork, from, from + rest});
      t.spans.push_back({TimelineSpan::kExposed, from, from + rest});
      t.exposed += rest;
      t.seconds += rest;
      t.network += rest;
    }
    const Timeline& t = lines.back();
    last = std::max(last, t.seconds);
    titles.push_back(str_cat(k.name, " on ", w.gpus, " x ", w.machine.name, ": ",
                             static_cast<int64_t>(100 * (t.exposed + t.blocking) / t.seconds + 0.5),
                             " % of the step is exposed communication"));
  }
  std::vector<Chart> panels;
  const std::vector<std::string> labels{"compute", "beside products", "gather, reduce", "exposed"};
  for (size_t i = 0; i < lines.size(); ++i) {
    Chart chart(titles[i], {.label = str_cat("ms, ", layers, " layers of ", w.model.name), .to = 1e3 * last},
                draw::y_names({"compute", "network", "waiting"}), {.height = 170});
    std::vector<draw::Span> spans;
    for (const TimelineSpan& s : lines[i].spans) {
      const double from = 1e3 * s.from, to = 1e3 * s.to;
      if (s.row == TimelineSpan::kCompute) spans.push_back({0, from, to, 0});
      if (s.row == TimelineSpan::kBlocking) {
        spans.push_back({1, from, to, 1});
        spans.push_back({2, from, to, 3});
      }
      if (s.row == TimelineSpan::kNetwork) spans.push_back({1, from, to, 2});
      if (s.row == TimelineSpan::kExposed) spans.push_back({2, from, to, 3});
    }
    chart.spans(labels, spans);
    panels.push_back(std::move(chart));
  }
  return draw::svg(panels);
}

}  // namespace weft::planner
