#include "tools/plan/report/timeline.h"

#include <algorithm>
#include <numeric>

#include "framework/base/error.h"
#include "framework/base/units.h"
#include "framework/io/json.h"
#include "tools/draw/chart.h"
#include "tools/draw/page.h"
#include "tools/plan/plan_texts.h"
#include "tools/plan/search.h"

namespace weft::planner {
namespace {

constexpr int64_t kLayers = 6;

struct Line {
  std::string name;
  Timeline time;  // timeline of a few layers
  StepCost step;  // cost of all layers
};

struct Lines {
  Workload drawn, whole;  // a few layers; all layers
  std::vector<Line> all;
};

// Ends with the update of the parameters and, in ZeRO-1, the gather of the new parameters.
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

Lines lines_of(const Workload& given) {
  Lines lines{.whole = given};
  Workload& whole = lines.whole;
  int64_t parts = whole.model.kv_heads;  // tp splits heads, and the rows of products
  for (const Block& b : whole.model.blocks)
    for (const Product& p : b.products)
      if (p.split == Product::kRows && !p.attended) parts = std::gcd(parts, p.in);
  int tp = static_cast<int>(std::min<int64_t>({whole.machine.links.node, parts, whole.gpus}));
  while (parts % tp != 0) --tp;
  whole.gpus -= whole.gpus % tp;
  whole.batch = whole.gpus;
  Workload& drawn = lines.drawn = whole;
  drawn.model = whole.model.with_layers(std::min(whole.model.layers(), kLayers));
  const int n = whole.gpus;
  std::vector<std::pair<std::string, Candidate>> ways{{"DDP", {.dp = n}},
                                                      {"ZeRO-1", {.dp = n, .zero = 1}},
                                                      {"ZeRO-3", {.fsdp = n, .zero = 3}},
                                                      {str_cat("tp", tp, " and DDP"), {.dp = n / tp, .tp = tp}}};
  // A timeline is one microbatch without stages.
  for (const PricedCandidate& best : search_plans(whole, {.microbatches = 1, .most_pp = 1}, 1).best) {
    const std::string text = best.candidate.text();
    const auto same = std::ranges::find(ways, text, [](const auto& way) { return way.second.text(); });
    if (same == ways.end())
      ways.insert(ways.begin(), {str_cat("best plan, ", text), best.candidate});
    else
      same->first = str_cat("best plan, ", same->first);
  }
  for (const auto& [name, candidate] : ways)
    lines.all.push_back({name, timeline_of(drawn, candidate), step_cost(whole, candidate)});
  const auto place = [&](const Line& l) { return std::pair(l.step.memory() > whole.usable_memory(), l.step.step); };
  std::ranges::stable_sort(lines.all, {}, place);
  return lines;
}

std::string percent(double part, double whole) {
  const double share = whole > 0 ? 100 * part / whole : 0;
  return formatted("%.*f %%", share < 10 ? 1 : 0, share);
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
  const Workload& w = lines.drawn;
  const int64_t layers = lines.whole.model.layers();
  std::vector<draw::Chart> panels;
  const std::vector<std::string> labels{"compute", "collectives in layers", "weights, gradients", "exposed"};
  for (const Line& l : lines.all) {
    std::string title = str_cat(l.name, " on ", w.gpus, " x ", w.machine.name, ": exposed communication is ",
                                percent(exposed_of(l.time), l.time.seconds), " of ");
    title += w.model.layers() < layers ? str_cat("these ", w.model.layers(), " layers, ",
                                                 percent(l.step.exposed(), l.step.step), " of all ", layers)
                                       : std::string("the step");
    if (l.step.memory() > w.usable_memory())
      title += str_cat("; does not fit: ", bytes_text(l.step.memory()), " of ", bytes_text(w.usable_memory()));
    draw::Chart chart(title,
                      {.label = str_cat("ms, ", w.model.layers(), " layers of ", w.model.name), .to = 1e3 * last},
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

std::string timeline_page(const Workload& given) {
  const Lines lines = lines_of(given);
  const Workload& w = lines.whole;
  io::OrderedJson json{
      {"title", str_cat("A step of ", w.model.name, " on ", w.gpus, " x ", w.machine.name)},
      {"note", str_cat(w.batch, " sequences of ", w.sequence, " tokens, ", w.model.layers(), " layers, of which ",
                       lines.drawn.model.layers(), " are drawn; collectives are predicted for nodes of ",
                       w.machine.links.node, w.async_tp ? "; tp sends while products compute (--async_tp)" : "")}};
  for (const Line& l : lines.all) {
    const StepCost& c = l.step;
    json["rows"].push_back({l.name, seconds_text(c.step), seconds_text(c.compute + c.update),
                            seconds_text(c.contention), seconds_text(c.communication),
                            seconds_text(std::max(0.0, c.communication - c.exposed())), seconds_text(c.exposed()),
                            percent(c.exposed(), c.step),
                            str_cat(bytes_text(c.memory()), c.memory() > w.usable_memory() ? ", does not fit" : "")});
  }
  json["svg"] = draw(lines);
  return tools::make_document("A step in time", plan_texts("timeline_html"), plan_texts("timeline_css"),
                              plan_texts("timeline_js"), io::write_json(json));
}

}  // namespace weft::planner
