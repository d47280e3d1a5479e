#include <algorithm>
#include <map>

#include "framework/base/error.h"
#include "tools/pipeline/schedules.h"
#include "tools/profile/table.h"

namespace weft::tools {
namespace {

using dist::pipeline::Action;
using dist::pipeline::ActionKind;

constexpr double kWidth = 1100, kRow = 24;

draw::Chart schedule_chart(const Scheduled& s, double longest) {
  std::vector<std::string> names, labels;
  std::map<std::pair<int, ActionKind>, size_t> numbers;  // the occurring labels, by chunk and kind
  for (size_t r = 0; r < s.table.ranks.size(); ++r) {
    names.push_back(str_cat("rank ", r));
    for (const Action& a : s.table.ranks[r]) numbers[{s.chunk_of(a.stage), a.kind}] = 0;
  }
  for (auto& [key, number] : numbers) {
    number = labels.size();
    labels.push_back(str_cat(to_string_view(key.second), s.chunks > 1 ? str_cat(", stage ", key.first + 1) : ""));
  }
  std::vector<draw::Span> spans;
  for (size_t r = 0; r < s.table.ranks.size(); ++r)
    for (size_t i = 0; i < s.table.ranks[r].size(); ++i) {
      const Action& a = s.table.ranks[r][i];
      auto [begin, end] = s.run.spans[r][i];
      const double middle = (begin + end) / 2;  // in a pair, the first action runs first
      if (a.with_next) end = middle;
      if (i > 0 && s.table.ranks[r][i - 1].with_next) begin = middle;
      if (end > begin) spans.push_back({r, begin, end, numbers[{s.chunk_of(a.stage), a.kind}], str_cat(a.microbatch)});
    }
  const double rows = static_cast<double>(std::max(names.size(), labels.size() + 4));
  draw::Chart chart(s.title(), {.label = "", .from = 0, .to = longest}, draw::y_names(names),
                    {.width = kWidth,
                     .height = 90 + std::max(kRow * static_cast<double>(names.size()), 16 * rows - 30),
                     .left = 70,
                     .legend = 150});
  chart.spans(labels, spans);
  chart.remark(str_cat("idle ", profiler::percent(1 - s.efficiency())));
  chart.remark(str_cat("activations ", s.peak()));
  return chart;
}

draw::Chart efficiency_chart(const PipelineChoice& c) {
  const int most = std::max(8 * c.ranks, 2 * c.microbatches);
  draw::Chart chart(str_cat("Efficiency over microbatches, ", profiler::count_text(c.ranks, "rank")),
                    {.label = "microbatches", .from = 0, .to = static_cast<double>(most)},
                    {.label = "efficiency", .from = 0, .to = 1}, {.width = kWidth, .legend = 150});
  for (const std::string& name : c.schedules) {
    std::vector<draw::Point> line;
    for (int m = 1; m <= most; m += std::max(1, most / 64)) {
      PipelineChoice at = c;
      at.microbatches = m;
      std::string why;
      if (exists(at, name, why)) line.push_back({static_cast<double>(m), scheduled(at, name).efficiency()});
    }
    if (!line.empty()) chart.line(line, name);
  }
  return chart;
}

draw::Chart trade_chart(const std::vector<Scheduled>& all) {
  double idle = 0, peak = 1;
  for (const Scheduled& s : all) idle = std::max(idle, 1 - s.efficiency()), peak = std::max(peak, s.peak());
  draw::Chart chart(
      "Idle time and activations", {.label = "idle time of all ranks, %", .from = 0, .to = 100 * idle * 1.2},
      {.label = "most microbatches alive", .from = 0, .to = peak * 1.1}, {.width = kWidth, .legend = 150});
  for (const Scheduled& s : all) chart.dots(std::vector<draw::Point>{{100 * (1 - s.efficiency()), s.peak()}}, s.name);
  return chart;
}

}  // namespace

std::vector<draw::Chart> schedule_charts(const PipelineChoice& c, const std::vector<Scheduled>& all) {
  double longest = 0;
  for (const Scheduled& s : all) longest = std::max(longest, s.makespan());
  std::vector<draw::Chart> charts;
  for (const Scheduled& s : all) charts.push_back(schedule_chart(s, longest));
  charts.push_back(efficiency_chart(c));
  charts.push_back(trade_chart(all));
  return charts;
}

}  // namespace weft::tools
