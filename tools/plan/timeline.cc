#include "tools/plan/timeline.h"

#include <algorithm>
#include <cstdio>
#include <numeric>

#include "framework/base/error.h"
#include "framework/base/units.h"
#include "framework/io/json.h"
#include "tools/draw/chart.h"
#include "tools/graph/page.h"
#include "tools/plan/plan_texts.h"

namespace weft::planner {
namespace {

constexpr int64_t kLayers = 6;

struct Line {
  std::string name;
  Timeline time;
};

struct Lines {
  Workload workload;  // of which the times are
  std::vector<Line> all;
};

// Ends with the update of the parameters and, with ZeRO-1, the gather of the new ones.
Timeline timeline_of(const Workload& w, const Candidate& c) {
  Timeline t = step_timeline(w, c);
  const StepCost cost = step_cost(w, c);
  const auto end = [&](TimelineSpan::Row row, double seconds, const char* name, double bytes) {
    if (seconds > 0) t.spans.push_back({row, t.seconds, t.seconds + seconds, name, bytes});
  };
  end(TimelineSpan::kCompute, cost.update, "update", 0);
  t.seconds += cost.update;
  t.compute += cost.update;
  if (c.zero != 1) return t;
  const double gather = cost.exposed_data - t.exposed;
  end(TimelineSpan::kNetwork, gather, "gather new weights", 4 * static_cast<double>(w.model.parameters()));
  end(TimelineSpan::kExposed, gather, "wait for new weights", 0);
  t.seconds += gather;
  t.exposed += gather;
  t.network += gather;
  return t;
}

Lines lines_of(const Workload& whole) {
  Lines lines{.workload = whole};
  Workload& w = lines.workload;
  w.async_tp = false;
  w.model.layers = std::min(w.model.layers, kLayers);
  w.model.dense_layers = std::min(w.model.dense_layers, w.model.layers);
  const int64_t parts = std::gcd(w.model.kv_heads, std::gcd(w.model.ffn, w.model.expert_ffn));
  int tp = static_cast<int>(std::min<int64_t>({w.machine.links.node, parts, w.gpus}));
  while (parts % tp != 0) --tp;
  w.gpus -= w.gpus % tp;
  w.batch = w.gpus;
  for (const auto& [name, candidate] :
       {std::pair("DDP", Candidate{.dp = w.gpus}), std::pair("ZeRO-1", Candidate{.dp = w.gpus, .zero = 1}),
        std::pair("ZeRO-3", Candidate{.fsdp = w.gpus, .zero = 3}),
        std::pair("tp and DDP", Candidate{.dp = w.gpus / tp, .tp = tp})})
    lines.all.push_back({name, timeline_of(w, candidate)});
  return lines;
}

std::string percent(double part, double whole) {
  char text[32];
  std::snprintf(text, sizeof text, "%.0f %%", whole > 0 ? 100 * part / whole : 0);
  return text;
}

double exposed_of(const Timeline& t) { return t.exposed + t.blocking; }

std::string title_of(const TimelineSpan& s) {
  return str_cat(s.name, "; start ", seconds_text(s.from), "; length ", seconds_text(s.to - s.from),
                 s.bytes > 0 ? str_cat("; ", bytes_text(s.bytes)) : std::string());
}

// "F0" for "forward 0".
std::string short_name(const std::string& name) {
  const size_t space = name.find(' ');
  if (name.starts_with("forward ")) return "F" + name.substr(space + 1);
  if (name.starts_with("backward ")) return "B" + name.substr(space + 1);
  return name;
}

std::string draw(const Lines& lines) {
  double last = 0;
  for (const Line& l : lines.all) last = std::max(last, l.time.seconds);
  const Workload& w = lines.workload;
  std::vector<draw::Chart> panels;
  const std::vector<std::string> labels{"compute", "collectives in layers", "weights, gradients", "exposed"};
  for (const Line& l : lines.all) {
    draw::Chart chart(str_cat(l.name, " on ", w.gpus, " x ", w.machine.name, ": ",
                              percent(exposed_of(l.time), l.time.seconds), " of the step is exposed communication"),
                      {.label = str_cat("ms, ", w.model.layers, " layers of ", w.model.name), .to = 1e3 * last},
                      draw::y_names({"compute", "in layers", "weights", "waiting"}), {.width = 1100, .height = 220});
    std::vector<draw::Span> spans;
    const auto add = [&](size_t row, const TimelineSpan& s, size_t label, std::string text = {}) {
      spans.push_back({row, 1e3 * s.from, 1e3 * s.to, label, std::move(text), title_of(s)});
    };
    for (const TimelineSpan& s : l.time.spans) switch (s.row) {
        case TimelineSpan::kCompute:
          add(0, s, 0, short_name(s.name));
          break;
        case TimelineSpan::kInPass:
          add(1, s, 1);
          break;
        case TimelineSpan::kNetwork:
          add(2, s, 2);
          break;
        case TimelineSpan::kExposed:
          add(3, s, 3);
      }
    chart.spans(labels, spans);
    panels.push_back(std::move(chart));
  }
  return draw::svg(panels);
}

}  // namespace

std::string timeline_svg(const Workload& w) { return draw(lines_of(w)); }

std::string timeline_page(const Workload& whole) {
  const Lines lines = lines_of(whole);
  const Workload& w = lines.workload;
  io::OrderedJson json{{"title", str_cat("A step of ", w.model.layers, " layers of ", w.model.name, " on ", w.gpus,
                                         " x ", w.machine.name)},
                       {"note", str_cat(w.batch, " sequences of ", w.sequence,
                                        " tokens; collectives are predicted for nodes of ", w.machine.links.node)}};
  for (const Line& l : lines.all) {
    const Timeline& t = l.time;
    const double all = t.network + t.blocking, exposed = exposed_of(t);
    json["rows"].push_back({l.name, seconds_text(t.seconds), seconds_text(t.compute), seconds_text(all),
                            seconds_text(std::max(0.0, all - exposed)), seconds_text(exposed),
                            percent(exposed, t.seconds)});
  }
  json["svg"] = draw(lines);
  return tools::make_page(plan_texts("timeline_html"), plan_texts("timeline_css"), plan_texts("timeline_js"),
                          io::write_json(json));
}

}  // namespace weft::planner
