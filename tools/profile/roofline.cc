#include <algorithm>
#include <cmath>
#include <map>

#include "framework/base/error.h"
#include "tools/draw/chart.h"
#include "tools/profile/pictures.h"
#include "tools/profile/record_file.h"
#include "tools/profile/table.h"

namespace weft::profiler {
namespace {

constexpr size_t kNamed = 12;  // number of named rows: the rows that take most of the time
constexpr double kGiga = 1e9;

// A power of ten not above, or not below, a value.
double decade_below(double v) { return std::pow(10, std::floor(std::log10(v))); }
double decade_above(double v) { return std::pow(10, std::ceil(std::log10(v))); }

struct Ceiling {
  std::string name;
  double rate;  // GFLOP/s
};

// The rates of arithmetic that the record's launches can reach.
std::vector<Ceiling> ceilings_of(const StepRecord& r) {
  std::map<std::string, double> products;
  for (const LaunchRecord& l : r.launches)
    if (l.work.products > 0)
      products[str_cat("products of ", l.work.product_dtype)] = r.machine.products_of(l.work.product_dtype) / kGiga;
  std::vector<Ceiling> ceilings;
  for (const auto& [name, rate] : products)
    if (rate > 0) ceilings.push_back({name, rate});
  if (r.machine.flops > 0) ceilings.push_back({"elementwise", r.machine.flops / kGiga});
  return ceilings;
}

}  // namespace

std::string roofline_svg(const StepRecord& r, By by) {
  const double all = r.sum().measured_us, memory = r.machine.bytes / kGiga;
  WEFT_CHECK_AS(kFailedPrecondition, all > 0, "roofline: the record has no measured times; ", kGetTimes);
  struct RooflinePoint {
    draw::Point at;  // FLOPs of a byte, GFLOP/s
    Bound bound;
    std::string name;
  };
  std::vector<RooflinePoint> rows;
  size_t undrawn = 0;
  for (const ProfileRow& row : rows_of(r, by)) {
    const Cost& w = row.sum.work;
    if (!(w.flops > 0 && w.bytes > 0 && row.sum.measured_us > 0)) {
      ++undrawn;
      continue;
    }
    rows.push_back({{w.flops / w.bytes, w.flops / row.sum.measured_us / 1e3},
                    row.bound,
                    str_cat(row.name, " ", percent(row.sum.measured_us / all))});
  }
  const std::vector<Ceiling> ceilings = ceilings_of(r);
  double x0 = 0.1, x1 = 100, y0 = 1, y1 = 10;
  for (const Ceiling& c : ceilings) x1 = std::max(x1, 4 * c.rate / memory), y1 = std::max(y1, 1.5 * c.rate);
  for (const RooflinePoint& row : rows) {
    x0 = std::min(x0, row.at.x), x1 = std::max(x1, row.at.x);
    y0 = std::min(y0, row.at.y), y1 = std::max(y1, 1.2 * row.at.y);
  }
  x0 = decade_below(x0), x1 = decade_above(x1), y0 = decade_below(y0), y1 = decade_above(y1);

  draw::Chart chart(str_cat("Roofline by ", to_string(by), ": ", r.title.empty() ? "a step" : r.title),
                    {.label = "FLOPs for each byte read or written", .from = x0, .to = x1, .base = 10},
                    {.label = "GFLOP/s", .from = y0, .to = y1, .base = 10},
                    {.width = 960, .height = 480, .left = 70, .legend = 300});
  double highest = y0;
  for (const Ceiling& c : ceilings) {
    highest = std::max(highest, c.rate);
    const double from = std::clamp(c.rate / memory, x0, x1);
    chart.line(std::vector<draw::Point>{{from, c.rate}, {x1, c.rate}},
               str_cat(c.name, ": ", fixed(c.rate, 0), " GFLOP/s"));
  }
  const double lowest_x = std::max(x0, y0 / memory), ridge = std::min(x1, highest / memory);
  if (lowest_x < ridge)
    chart.limit(std::vector<draw::Point>{{lowest_x, lowest_x * memory}, {ridge, ridge * memory}},
                str_cat("memory: ", fixed(memory, 1), " GB/s"));
  for (Bound bound : {Bound::kProducts, Bound::kArithmetic, Bound::kMemory}) {
    std::vector<draw::Point> points;
    for (const RooflinePoint& row : rows)
      if (row.bound == bound) points.push_back(row.at);
    if (!points.empty()) chart.dots(points, str_cat("bound by ", weft::to_string(bound)));
  }
  chart.remark("");
  chart.remark("share of the launches' time:");
  for (size_t i = 0; i < std::min(rows.size(), kNamed); ++i) {
    chart.note(rows[i].at, str_cat(i + 1));
    chart.remark(str_cat(i + 1, " ", rows[i].name));
  }
  if (undrawn > 0) chart.remark(str_cat("not drawn: ", undrawn, " without arithmetic"));
  return draw::svg({&chart, 1});
}

}  // namespace weft::profiler
