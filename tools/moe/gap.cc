#include "tools/moe/gap.h"

#include <algorithm>
#include <map>
#include <set>

#include "framework/base/error.h"
#include "framework/io/json.h"
#include "ops/composite/layers/moe.h"
#include "tools/profile/measure.h"
#include "tools/profile/table.h"

namespace weft::moe_study {
namespace {

using profiler::fixed;
using profiler::percent;

bool within(const std::string& scope, const std::string& module) {
  return str_cat(".", scope, ".").find(str_cat(".", module, ".")) != std::string::npos;
}

// The modules of a record that have a layer with experts: "blocks.0".
std::set<std::string> blocks_with_experts(const StepRecord& record) {
  std::set<std::string> blocks;
  for (const LaunchRecord& l : record.launches)
    if (const size_t at = l.scope.find(".moe"); at != l.scope.npos) blocks.insert(l.scope.substr(0, at));
  return blocks;
}

// The part of a launch. A launch of a whole block with experts is the sum of a token's rows, fused with the following
// ops.
double& part_of(Parts& p, const LaunchRecord& l, const std::set<std::string>& blocks, int64_t dim, int64_t hidden) {
  if (l.phase == Phase::kUpdate) return p.update;
  if (within(l.scope, "ffn") || within(l.scope, "shared")) return p.experts;
  if (blocks.count(l.scope)) return p.dispatch;
  if (!within(l.scope, "moe")) return p.same;
  if (l.kind == WorkClass::kCollective) return p.exchange;
  if (within(l.scope, "router")) return p.routing;
  if (l.kind == WorkClass::kContraction) return p.experts;
  int64_t last = 0;
  for (const TensorType& t : l.results)
    if (!t.shape.empty()) last = std::max(last, t.shape.back());
  return last == hidden ? p.experts : last == dim ? p.dispatch : p.routing;
}

// Each cause begins at the end of the previous cause.
draw::Chart gap_chart(const std::string& title, const Gap& gap) {
  const std::vector<std::string> labels{"the gap", "a cause", "the rest"};
  std::vector<std::string> names{"gap"};
  std::vector<draw::Span> spans{{0, 0, gap.ms, 0, fixed(gap.ms, 1)}};
  double at = 0, least = std::min(0.0, gap.ms), most = std::max(0.0, gap.ms);
  const auto add = [&](const std::string& name, double ms, size_t label) {
    spans.push_back({names.size(), at, at + ms, label, fixed(ms, 1)});
    names.push_back(name);
    at += ms;
    least = std::min(least, at), most = std::max(most, at);
  };
  for (const Cause& c : gap.causes) add(c.name, c.ms, 1);
  add("the rest", gap.rest, 2);
  const double room = std::max(most - least, 1e-3) / 20;
  draw::Chart chart(title, {.label = "ms of a step", .from = least < 0 ? least - room : 0, .to = most + room},
                    draw::y_names(names), {.width = 760, .height = 340, .left = 130, .legend = 110});
  chart.spans(labels, spans);
  return chart;
}

}  // namespace

Parts parts_of(const profiler::TimedStep& step, int64_t dim, int64_t hidden) {
  Parts p{.host = step.host_us * 1e-3};
  const std::set<std::string> blocks = blocks_with_experts(step.record);
  for (const LaunchRecord& l : step.record.launches) part_of(p, l, blocks, dim, hidden) += l.measured_us * 1e-3;
  return p;
}

double slower_ms(const profiler::TimedStep& dense, const profiler::TimedStep& step, int64_t dim, int64_t hidden) {
  struct LaunchSums {
    int64_t launches[2] = {0, 0};
    double us[2] = {0, 0};
  };
  std::map<std::string, LaunchSums> by_work;
  for (const int k : {0, 1}) {
    const StepRecord& record = (k ? step : dense).record;
    const std::set<std::string> blocks = blocks_with_experts(record);
    for (const LaunchRecord& l : record.launches) {
      Parts p;
      if (&part_of(p, l, blocks, dim, hidden) != &p.same) continue;
      std::string work = str_cat(l.scope, " ", static_cast<int>(l.phase), " ", to_string(l.kind));
      for (const TensorType& t : l.results) work += " " + t.to_string();
      ++by_work[work].launches[k];
      by_work[work].us[k] += l.measured_us;
    }
  }
  double us = 0;
  for (const auto& [work, sums] : by_work)
    if (sums.launches[0] == sums.launches[1]) us += sums.us[1] - sums.us[0];
  return us * 1e-3;
}

Gap gap_of(const Parts& dense, const Parts& even, const Parts& step, double padding, double slower) {
  Gap g{.ms = step.sum() - dense.sum()};
  const double padded = even.experts * padding;
  g.causes = {{"routing", even.routing - dense.routing},
              {"dispatch", even.dispatch - dense.dispatch},
              {"padding", padded},
              {"small products", even.experts - padded - dense.experts},
              {"exchange", even.exchange - dense.exchange},
              {"imbalance", step.routing + step.dispatch + step.experts + step.exchange - even.routing - even.dispatch -
                                even.experts - even.exchange},
              {"more parameters", step.update - dense.update},
              {"equal launches", slower},
              {"host and gaps", step.host - dense.host}};
  g.rest = g.ms;
  for (const Cause& c : g.causes) g.rest -= c.ms;
  return g;
}

moe::Config config_of(tools::StepChoice& choice) {
  choice.model = "moe";
  if (choice.config.empty()) choice.config = "moe_small";
  return nn::from_map<moe::Config>(tools::config_of(moe::family(), choice.config, choice.fields));
}

int64_t tokens_of(const tools::StepChoice& choice, const moe::Config& config) {
  return choice.batch_size * (choice.seq_len > 0 ? choice.seq_len : std::min<int64_t>(config.context, 128));
}

study::StudyReport gap_study(tools::StepChoice choice, int64_t rounds) {
  const moe::Config config = config_of(choice);
  tools::StepChoice dense = choice, even = choice, step = choice;
  dense.fields["dense_layers"] = str_cat(config.layers);
  dense.fields["dense_ffn"] = str_cat(config.top_k * config.ffn + config.shared_ffn);
  even.fields["route"] = "balanced";
  const std::vector<profiler::TimedStep> steps = profiler::measure_in_turn({dense, even, step}, rounds);
  const Parts d = parts_of(steps[0], config.dim, config.ffn), e = parts_of(steps[1], config.dim, config.ffn),
              s = parts_of(steps[2], config.dim, config.ffn);
  // Even choices fill T k of the E C places.
  const int64_t tokens = tokens_of(choice, config);
  const double chosen = static_cast<double>(tokens * config.top_k);
  double padding = 0;
  if (const double capacity = config.capacity_factor; capacity > 0) {
    const auto places =
        static_cast<double>(config.experts * expert_capacity(tokens, config.top_k, config.experts, capacity));
    padding = std::max(0.0, 1 - chosen / places);
  }
  const Gap gap = gap_of(d, e, s, padding, slower_ms(steps[0], steps[2], config.dim, config.ffn));
  std::vector<std::vector<std::string>> rows{{"cause", "ms", "of the gap"}};
  const std::string title = steps[2].record.title;
  io::OrderedJson json{{"title", title}, {"route", config.route}, {"gap_ms", gap.ms}};
  for (const Cause& c : gap.causes) {
    rows.push_back({c.name, fixed(c.ms, 3), percent(c.ms / gap.ms)});
    json["causes"][c.name] = c.ms;
  }
  rows.push_back({"sum of the causes", fixed(gap.ms - gap.rest, 3), percent(1 - gap.rest / gap.ms)});
  rows.push_back({"the rest", fixed(gap.rest, 3), percent(gap.rest / gap.ms)});
  rows.push_back({"gap", fixed(gap.ms, 3), "100.0%"});
  json["rest_ms"] = gap.rest;
  std::vector<std::vector<std::string>> parts{{"ms", "dense", "experts, even", config.route}};
  const auto add = [&](const char* name, double Parts::*part) {
    parts.push_back({name, fixed(d.*part, 3), fixed(e.*part, 3), fixed(s.*part, 3)});
    json["parts"][name] = {d.*part, e.*part, s.*part};
  };
  add("routing", &Parts::routing), add("dispatch and combine", &Parts::dispatch);
  add("feed-forward, experts", &Parts::experts), add("exchange", &Parts::exchange);
  add("update of parameters", &Parts::update), add("attention, norms, head", &Parts::same);
  add("host and gaps", &Parts::host);
  parts.push_back({"step, the sum", fixed(d.sum(), 3), fixed(e.sum(), 3), fixed(s.sum(), 3)});
  std::vector<std::string>& whole = parts.emplace_back(1, "step as it is");
  for (const profiler::TimedStep& t : steps) {
    whole.push_back(fixed(t.record.step_us * 1e-3, 3));
    json["step_ms"].push_back(t.record.step_us * 1e-3);
  }
  const double whole_ms = (steps[2].record.step_us - steps[0].record.step_us) * 1e-3;
  json["whole_gap_ms"] = whole_ms;
  study::StudyReport report;
  report.text = str_cat(
      title, "\nbeside the dense model of equal active FLOPs: ", fixed(s.sum() / d.sum(), 2), " times as long\n\n",
      profiler::table_text(parts), "\n", profiler::table_text(rows),
      "\nThe gap is the difference of the sums. Times are means over the calmest third of all rounds. As they are, "
      "without\ntimed launches, the steps differ by ",
      fixed(whole_ms, 3), " ms, of which the causes are ", percent((gap.ms - gap.rest) / whole_ms), ".\n");
  report.json = io::write_json(json, 2);
  report.charts.push_back(gap_chart(title, gap));
  return report;
}

}  // namespace weft::moe_study
