#include "tools/draw/chart_files.h"

#include <algorithm>
#include <cmath>

#include "framework/base/one_line.h"
#include "framework/io/json.h"

namespace weft::draw {
namespace {

using io::Json;

constexpr double kMost = 1e30;  // larger values are not drawn

// A value in errors: its type and, except for null, lists and objects, its text.
std::string got(const Json& j) {
  if (j.is_null() || j.is_structured()) return j.type_name();
  return str_cat(j.type_name(), " ", one_line(io::write_json(j), 40));
}

// A number that can be drawn.
double number(const Json& j, const std::string& what) {
  WEFT_CHECK(j.is_number(), what, " is ", got(j), "; need a number");
  const double v = j.get<double>();
  WEFT_CHECK(std::abs(v) < kMost, what, " is ", v, "; need a number below 1e30");
  return v;
}

const Json& list(const Json& j, const std::string& what) {
  WEFT_CHECK(j.is_array(), what, " is ", got(j), "; need a list");
  return j;
}

struct Metrics {
  std::vector<Point> train, held_out;
  using MetricRows = std::vector<std::pair<double, std::vector<double>>>;  // step, and a number by expert or layer
  MetricRows load, max_over_mean, dead, dropped;
};

// A list of numbers; empty if the row lacks it.
std::vector<double> numbers(const Json& row, const char* key) {
  std::vector<double> v;
  if (row.contains(key) && !row[key].is_null())
    for (const Json& j : list(row[key], key)) v.push_back(number(j, str_cat(key, "[", v.size(), "]")));
  return v;
}

void add_line(std::string_view line, Metrics& m) {
  const Json row = io::parse_json(line, "metrics");
  WEFT_CHECK(row.is_object(), "got ", got(row), "; need an object with \"step\"");
  WEFT_CHECK(row.contains("step"), "\"step\" is missing; need a number");
  const double step = number(row["step"], "step");
  if (row.contains("eval_loss")) {
    m.held_out.push_back({step, number(row["eval_loss"], "eval_loss")});
  } else if (row.contains("loss") && !row["loss"].is_null()) {
    m.train.push_back({step, number(row["loss"], "loss")});
    m.load.emplace_back(step, numbers(row, "expert_load"));
    m.max_over_mean.emplace_back(step, numbers(row, "max_over_mean_by_layer"));
    m.dead.emplace_back(step, numbers(row, "dead_experts_by_layer"));
    m.dropped.emplace_back(step, numbers(row, "dropped_by_layer"));
  }
}

Metrics read_metrics(std::string_view text, const std::string& file) {
  Metrics m;
  size_t number = 0;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    ++number;
    try {
      add_line(text.substr(0, end), m);
    } catch (const Error& e) {
      throw Error(e.code(), str_cat(file, ": line ", number, ": ", e.what()));
    }
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  WEFT_CHECK(!m.train.empty(), file, ": no steps in it");
  return m;
}

constexpr Layout kMetricsLayout{.legend = 130};

// Members of one object of a chart file; `what` is the object in errors.
class ObjectFields {
 public:
  ObjectFields(const Json& j, std::string what) : j_(j), what_(std::move(what)) {
    WEFT_CHECK(j.is_object(), what_, " is ", j.type_name(), "; need an object");
  }
  bool has(const char* key) const { return j_.contains(key); }
  const Json& member(const char* key) const { return io::json_member(j_, key, what_); }
  std::string name(const char* key) const { return str_cat(what_, ".", key); }
  std::string text(const char* key) const {
    return has(key) ? io::json_get<std::string>(j_, key, what_) : std::string();
  }
  double number(const char* key) const { return draw::number(member(key), name(key)); }
  const Json& list(const char* key) const {
    static const Json kEmpty = Json::array();
    return has(key) ? draw::list(j_[key], name(key)) : kEmpty;
  }
  std::vector<std::string> texts(const char* key) const {
    std::vector<std::string> out;
    for (const Json& j : list(key)) {
      WEFT_CHECK(j.is_string(), name(key), " has ", j.type_name(), "; need texts");
      out.push_back(j.get<std::string>());
    }
    return out;
  }

 private:
  const Json& j_;
  std::string what_;
};

Axis axis_of(const ObjectFields& chart, const char* key) {
  const ObjectFields f(chart.member(key), chart.name(key));
  if (f.has("names")) return x_names(f.texts("names"), f.text("label"));
  return {f.text("label"), f.number("from"), f.number("to"), f.has("base") ? f.number("base") : 0};
}

// A list of two numbers.
Point pair_of(const Json& j, const std::string& what) {
  WEFT_CHECK(j.is_array() && j.size() == 2, what, " has ", j.type_name(), "; need pairs of numbers");
  return {number(j[0], what), number(j[1], what)};
}

void add_series(const ObjectFields& chart, const char* key, Chart& out,
                void (Chart::*add)(std::span<const Point>, const std::string&)) {
  for (const Json& j : chart.list(key)) {
    const ObjectFields series(j, chart.name(key));
    std::vector<Point> points;
    for (const Json& p : series.list("points")) points.push_back(pair_of(p, series.name("points")));
    (out.*add)(points, series.text("label"));
  }
}

void add_bars(const ObjectFields& bars, Chart& out) {
  std::vector<Bar> all;
  const std::vector<std::string> labels = bars.texts("labels");
  for (const Json& j : bars.list("bars")) {
    const ObjectFields one(j, bars.name("bars"));
    Bar b{.at = one.number("at"), .parts = {}};
    for (const Json& part : one.list("parts")) {
      const Point p = pair_of(part, one.name("parts"));
      WEFT_CHECK(p.x >= 0 && p.x < static_cast<double>(labels.size()), one.name("parts"), " has label ", p.x,
                 "; there are ", labels.size());
      b.parts.emplace_back(static_cast<size_t>(p.x), p.y);
    }
    all.push_back(std::move(b));
  }
  out.bars(labels, all, bars.number("width"));
}

Chart chart_of(const ObjectFields& panel) {
  Chart chart(panel.text("title"), axis_of(panel, "x"), axis_of(panel, "y"));
  add_series(panel, "lines", chart, &Chart::line);
  add_series(panel, "limits", chart, &Chart::limit);
  add_series(panel, "dots", chart, &Chart::dots);
  if (panel.has("bars")) add_bars(ObjectFields(panel.member("bars"), panel.name("bars")), chart);
  return chart;
}

}  // namespace

std::vector<Chart> metrics_charts(std::string_view text, const std::string& file, const std::string& title) {
  const Metrics m = read_metrics(text, file);
  double steps = m.train[0].x, low = 0, high = m.train[0].y;
  for (const std::vector<Point>* points : {&m.train, &m.held_out})
    for (const Point& p : *points) {
      if (points == &m.train) steps = std::max(steps, p.x);
      low = std::min(low, p.y);
      high = std::max(high, p.y);
    }
  const Axis x{.label = "step", .from = 0, .to = steps};
  std::vector<Chart> charts;
  charts.emplace_back(title, x, Axis{.label = "loss in nats", .from = low, .to = high}, kMetricsLayout);
  charts[0].line(m.train, "training");
  if (!m.held_out.empty()) charts[0].dots(m.held_out, "held out");
  // Lines by expert or layer, without lines that stay 0.
  const auto add = [&](const char* title, const char* label, const Metrics::MetricRows& rows, const char* one) {
    const size_t lines = rows.back().second.size();
    double most = 0;
    for (const auto& [step, values] : rows)
      for (double v : values) most = std::max(most, v);
    if (most <= 0) return;
    charts.emplace_back(title, x, Axis{.label = label, .from = 0, .to = most * 1.1}, kMetricsLayout);
    for (size_t i = 0; i < lines; ++i) {
      std::vector<Point> points;
      for (const auto& [step, values] : rows)
        if (values.size() == lines) points.push_back({step, values[i]});
      charts.back().line(points, str_cat(one, " ", i));
    }
  };
  add("Share of tokens by expert", "share", m.load, "expert");
  add("Load of the fullest expert over the mean", "max / mean", m.max_over_mean, "layer");
  add("Experts without tokens", "experts", m.dead, "layer");
  add("Share of choices that were dropped", "share", m.dropped, "layer");
  return charts;
}

std::vector<Chart> json_charts(std::string_view text, const std::string& file) {
  const Json json = io::parse_json(text, file);
  std::vector<Chart> charts;
  try {
    for (const Json& j : ObjectFields(json, "the chart").list("panels"))
      charts.push_back(chart_of(ObjectFields(j, str_cat("panel ", charts.size()))));
    WEFT_CHECK(!charts.empty(), "\"panels\" is missing or empty; need a list of charts");
  } catch (const Error& e) {
    throw Error(e.code(), str_cat(file, ": ", e.what()));
  }
  return charts;
}

}  // namespace weft::draw
