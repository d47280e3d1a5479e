#include "tools/precision/charts.h"

#include <algorithm>
#include <cmath>

#include "ops/numerics/number_format.h"

namespace weft::precision {

using draw::Chart;
using draw::Point;

Chart format_chart() {
  std::vector<std::string> names;
  std::vector<draw::Span> spans;
  for (const formats::NumberFormat& f : formats::number_formats()) {
    if (!f.real || f.block) continue;
    const double normal = std::log2(f.real->min_normal());
    spans.push_back({names.size(), std::log2(f.real->min_subnormal()), normal, 0});
    spans.push_back({names.size(), normal, std::log2(f.real->max()), 1});
    names.emplace_back(f.name);
  }
  Chart c("Ranges of formats", {.label = "log2 of the magnitude", .from = -160, .to = 130}, draw::y_names(names),
          {.height = 240});
  c.spans(std::vector<std::string>{"subnormal", "normal"}, spans);
  return c;
}

Chart op_chart(const std::vector<OpError>& errors) {
  std::vector<std::string> ops, formats;
  std::map<std::string, std::vector<Point>> points;
  double least = 1, most = 0;
  for (const OpError& e : errors) {
    if (ops.empty() || ops.back() != e.op) ops.push_back(e.op);
    if (std::find(formats.begin(), formats.end(), e.format) == formats.end()) formats.push_back(e.format);
    if (e.wide_median <= 0) continue;
    points[e.format].push_back({static_cast<double>(ops.size() - 1), e.wide_median});
    least = std::min(least, e.wide_median), most = std::max(most, e.wide_median);
  }
  Chart c("Median relative error: operands and results rounded", draw::x_names(ops),
          {.label = "relative error", .from = least / 2, .to = std::max(most, least) * 2, .base = 10},
          {.width = 1000, .height = 340});
  for (const std::string& f : formats)
    if (!points[f].empty()) c.dots(points[f], f);
  return c;
}

Chart range_chart(const std::map<Kind, Magnitudes>& totals) {
  double from = -30, to = 10, top = 0;
  for (const auto& [kind, m] : totals)
    for (const auto& [e, n] : m.by_exponent) {
      from = std::min<double>(from, std::max(e, -80)), to = std::max<double>(to, e + 1);
      top = std::max(top, 100 * static_cast<double>(n) / static_cast<double>(m.elements));
    }
  Chart c("Magnitudes of a training step", {.label = "log2 of the magnitude", .from = from, .to = to},
          {.label = "% of the elements", .from = 0, .to = top * 1.3}, {.width = 900, .height = 340});
  for (const auto& [kind, m] : totals) {
    std::vector<Point> line;
    for (int e = static_cast<int>(from); e < static_cast<int>(to); ++e) {
      const auto at = m.by_exponent.find(e);
      const double n = at == m.by_exponent.end() ? 0 : static_cast<double>(at->second);
      line.push_back({e + 0.5, 100 * n / static_cast<double>(m.elements)});
    }
    c.line(line, kind_name(kind));
  }
  double level = top * 1.25;
  for (const char* name : {"FP16", "E5M2", "E4M3", "E2M1"}) {
    const formats::FloatFormat f = *formats::number_format(name).real;
    const double low = std::max(from, std::log2(f.min_subnormal())), high = std::min(to, std::log2(f.max()));
    c.limit(std::vector<Point>{{low, level}, {high, level}}, "");
    c.note({low, level}, name);
    level -= top * 0.07;
  }
  return c;
}

Chart curve_chart(const std::string& title, const std::string& y, const std::vector<Curve>& curves, bool logarithmic) {
  double least = HUGE_VAL, most = -HUGE_VAL;
  size_t steps = 1;
  for (const Curve& c : curves)
    for (double v : c.values)
      if (std::isfinite(v)) least = std::min(least, v), most = std::max(most, v);
  for (const Curve& c : curves) steps = std::max(steps, c.values.size());
  if (!(least <= most)) least = 0, most = 1;
  draw::Axis axis{.label = y, .from = least, .to = most};
  if (logarithmic) {
    axis.from = least / 2, axis.to = most * 2, axis.base = 10;
  } else {
    const double room = std::max(0.05 * (most - least), 1e-6);
    axis.from -= room, axis.to += room;
  }
  Chart chart(title, {.label = "step", .from = 0, .to = static_cast<double>(steps)}, axis, {.width = 900});
  for (const Curve& c : curves) {
    std::vector<Point> line;
    for (size_t i = 0; i < c.values.size(); ++i)
      if (std::isfinite(c.values[i])) line.push_back({static_cast<double>(i + 1), c.values[i]});
    if (!line.empty()) chart.line(line, c.label);
  }
  return chart;
}

}  // namespace weft::precision
