#include "tools/precision/charts.h"

#include <algorithm>
#include <cmath>

#include "ops/numerics/number_format.h"

namespace weft::precision {

using draw::Chart;
using draw::Point;

static Chart ranges(const std::vector<std::string>& names, const char* title, const draw::Axis& x, double height,
                    double width) {
  std::vector<draw::Span> spans;
  for (size_t i = 0; i < names.size(); ++i) {
    const formats::FloatFormat f = *formats::number_format(names[i]).real;
    const double normal = std::log2(f.min_normal());
    spans.push_back({i, std::max(x.from, std::log2(f.min_subnormal())), normal, 0});
    spans.push_back({i, normal, std::min(x.to, std::log2(f.max())), 1});
  }
  Chart c(title, x, draw::y_names(names), {.width = width, .height = height});
  c.spans(std::vector<std::string>{"subnormal", "normal"}, spans);
  return c;
}

Chart format_chart() {
  std::vector<std::string> names;
  for (const formats::NumberFormat& f : formats::number_formats())
    if (f.real && !f.block) names.emplace_back(f.name);
  return ranges(names, "Ranges of formats", {.label = "log2 of the magnitude", .from = -160, .to = 130}, 240, 760);
}

Chart op_chart(const std::vector<OpError>& errors) {
  std::vector<std::string> ops, formats;
  std::map<std::string, std::vector<Point>> points;
  double least = 1, most = 0;
  for (const OpError& e : errors) {
    if (ops.empty() || ops.back() != e.op) ops.push_back(e.op);
    if (std::find(formats.begin(), formats.end(), e.format) == formats.end()) formats.push_back(e.format);
    if (e.wide.median <= 0 || e.format == "TF32" || e.format == "E2M1") continue;
    points[e.format].push_back({static_cast<double>(ops.size() - 1), e.wide.median});
    least = std::min(least, e.wide.median), most = std::max(most, e.wide.median);
  }
  Chart c("Median relative error: operands and results rounded; 256 values", draw::x_names(ops),
          {.label = "relative error", .from = least / 2, .to = std::max(most, least) * 2, .base = 10},
          {.width = 1000, .height = 340});
  for (const std::string& f : formats)
    if (!points[f].empty()) c.dots(points[f], f);
  return c;
}

std::vector<Chart> range_charts(const std::map<TensorKind, Magnitudes>& totals) {
  constexpr double kLeastShare = 0.05;  // % below which a magnitude does not widen the chart
  const auto share = [](const Magnitudes& m, int64_t n) {
    return 100 * static_cast<double>(n) / static_cast<double>(m.elements);
  };
  double from = -26, to = 18, top = 0;
  for (const auto& [kind, m] : totals)
    for (const auto& [e, n] : m.by_exponent) {
      if (share(m, n) < kLeastShare) continue;
      from = std::min<double>(from, e - 1), to = std::max<double>(to, e + 2);
      top = std::max(top, share(m, n));
    }
  const draw::Axis x{.label = "log2 of the magnitude", .from = from, .to = to};
  Chart shares("Magnitudes of a training step", x, {.label = "% of the elements", .from = 0, .to = top * 1.1},
               {.width = 900});
  for (const auto& [kind, m] : totals) {
    std::vector<Point> line;
    for (int e = static_cast<int>(from); e < static_cast<int>(to); ++e) {
      const auto at = m.by_exponent.find(e);
      line.push_back({e + 0.5, at == m.by_exponent.end() ? 0 : share(m, at->second)});
    }
    shares.line(line, kind_name(kind));
  }
  return {std::move(shares), ranges({"FP16", "E5M2", "E4M3", "E2M1"}, "Ranges of formats", x, 180, 900)};
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
