#include "tools/moe/layouts.h"

#include <algorithm>

#include "compiler/cost/collective_seconds.h"
#include "distributed/launch/compile.h"
#include "distributed/plan/report.h"
#include "framework/base/units.h"
#include "framework/cli/cli.h"
#include "framework/io/json.h"
#include "tools/doctor/machine.h"
#include "tools/moe/gap.h"
#include "tools/profile/table.h"

namespace weft::moe_study {
namespace {

struct Placed {
  const char* name;
  const char* axis;
  bool sequence;  // dist::Plan::sequence: with it tp splits tokens where they meet experts, which it then leaves whole
};
constexpr Placed kLayouts[] = {{"replicate", "dp", true}, {"slice", "tp", false}, {"spread", "ep", true}};

/// Bytes of a rank unless noted.
struct MoeLayout {
  std::string name, mesh;
  double peak = 0, measured_peak = 0, parameters = 0, experts = 0;
  double copies = 0;                         // copies of an expert on all ranks
  double idle = 0;                           // bytes of experts on all ranks that a token does not use
  double rows = 0, others = 0, updates = 0;  // sent by all ranks for a token: experts' layers, others, gradients
  double step_ms = 0;                        // 0: not run
};

MoeLayout layout_of(const Placed& placed, tools::StepChoice choice, int64_t ranks, const moe::Config& config,
                    int64_t rounds) {
  choice.mesh = str_cat(placed.axis, ranks);
  choice.plan.sequence = placed.sequence;
  tools::ModelStep planned(choice, Device::meta());
  planned.prepare();
  const dist::PlanReport plan = planned.compiled().plan("cpu");
  MoeLayout l{.name = placed.name, .mesh = choice.mesh, .peak = static_cast<double>(plan.peak_bytes())};
  double whole = 0;
  for (const dist::PlannedCell& c : plan.parameters()) {
    l.parameters += static_cast<double>(c.bytes);
    if (c.name.find(".moe.w") == std::string::npos) continue;
    l.experts += static_cast<double>(c.bytes);
    whole += static_cast<double>(c.type.nbytes());
  }
  const auto all = static_cast<double>(ranks), tokens = static_cast<double>(tokens_of(choice, config));
  l.copies = l.experts * all / whole;
  // A token uses top_k experts once, wherever they are.
  l.idle = l.experts * all - whole * static_cast<double>(config.top_k) / static_cast<double>(config.experts);
  for (const dist::PlannedCollective& c : plan.collectives()) {
    const double sent = static_cast<double>(c.bytes) * bus_factor(c.kind, all) * all / tokens;
    (c.subject != dist::Subject::kActivation    ? l.updates
     : c.what.find(".moe") != std::string::npos ? l.rows
                                                : l.others) += sent;
  }
  if (rounds == 0) return l;
  const double memory = tools::usable_memory();
  if (l.peak * all > memory / 2)
    usage_error(str_cat("--layouts: ", ranks, " ranks of ", bytes_text(l.peak), " on ", choice.mesh,
                        " need more than half of this machine's ", bytes_text(memory),
                        "; with --rounds 0 nothing runs"));
  tools::ModelStep step(choice);
  for (int i = 0; i < 3; ++i) step.run();
  l.step_ms = 1e3 * step.run();
  for (int64_t i = 1; i < rounds; ++i) l.step_ms = std::min(l.step_ms, 1e3 * step.run());
  for (int r = 0; r < ranks; ++r)
    l.measured_peak = std::max(l.measured_peak, static_cast<double>(step.compiled().record(r).measured_peak_bytes));
  return l;
}

/// A bar for each layout, of parts in megabytes or kilobytes.
draw::Chart chart_of(const std::string& title, const std::string& unit, double bytes,
                     const std::vector<MoeLayout>& layouts, const std::vector<std::string>& labels,
                     const std::vector<double MoeLayout::*>& parts) {
  std::vector<std::string> names;
  std::vector<draw::Bar> bars;
  double most = 0;
  for (const MoeLayout& l : layouts) {
    draw::Bar bar{static_cast<double>(names.size()), {}};
    double sum = 0;
    for (size_t k = 0; k < parts.size(); ++k) {
      bar.parts.emplace_back(k, l.*parts[k] / bytes);
      sum += l.*parts[k] / bytes;
    }
    names.push_back(str_cat(l.name, ", ", l.mesh));
    bars.push_back(bar);
    most = std::max(most, sum);
  }
  draw::Chart chart(title, draw::x_names(names), {.label = unit, .from = 0, .to = most * 1.1}, {.height = 260});
  chart.bars(labels, bars, 0.6);
  return chart;
}

}  // namespace

study::StudyReport layout_study(tools::StepChoice choice, int64_t ranks, int64_t rounds) {
  const moe::Config config = config_of(choice);
  if (ranks < 2 || config.experts % ranks != 0)
    usage_error(str_cat("--ranks is ", ranks, "; need a divisor of the ", config.experts, " experts, 2 or more"));
  choice.fields["route"] = "balanced";
  const int64_t tokens = tokens_of(choice, config);
  std::vector<MoeLayout> layouts;
  if (choice.batch_size % ranks != 0)
    usage_error(str_cat("--batch_size is ", choice.batch_size, "; need a multiple of --ranks, ", ranks));
  for (const Placed& p : kLayouts) layouts.push_back(layout_of(p, choice, ranks, config, rounds));
  std::vector<std::vector<std::string>> rows{{"", "mesh", "copies", "peak", "parameters", "experts'",
                                              "idle for a token", "bytes sent: experts", "others", "gradients"}};
  if (rounds > 0) rows[0].insert(rows[0].end(), {"measured peak", "ms a step"});
  io::OrderedJson json{{"ranks", ranks}, {"tokens", tokens}};
  for (const MoeLayout& l : layouts) {
    rows.push_back({l.name, l.mesh, profiler::fixed(l.copies, 0), bytes_text(l.peak), bytes_text(l.parameters),
                    bytes_text(l.experts), bytes_text(l.idle), bytes_text(l.rows), bytes_text(l.others),
                    bytes_text(l.updates)});
    if (rounds > 0) rows.back().insert(rows.back().end(), {bytes_text(l.measured_peak), profiler::fixed(l.step_ms, 1)});
    json["layouts"].push_back(
        {{"layout", l.name},
         {"mesh", l.mesh},
         {"copies", l.copies},
         {"peak_bytes", l.peak},
         {"measured_peak_bytes", l.measured_peak},
         {"parameter_bytes", l.parameters},
         {"expert_bytes", l.experts},
         {"idle_bytes", l.idle},
         {"sent_bytes_for_a_token", {{"experts", l.rows}, {"others", l.others}, {"gradients", l.updates}}},
         {"step_ms", l.step_ms}});
  }
  study::StudyReport report;
  report.text = str_cat(
      "moe ", choice.config, ", ", ranks, " ranks, ", tokens, " tokens a step, ", choice.dtype, "\n\n",
      profiler::table_text(rows),
      "\npeak, parameters, experts': bytes of one rank. idle for a token: the experts on all ranks that it does "
      "not\nuse. bytes sent: by all ranks for a token, in forward and backward by layers with experts and by "
      "others, "
      "and of\ngradients. replicate: each rank has all experts and its tokens. slice: each rank has a part of every "
      "expert and of\nevery head, and all tokens. spread: each rank has whole experts, and its tokens travel.\n");
  report.json = io::write_json(json, 2);
  for (MoeLayout& l : layouts) l.parameters -= l.experts, l.peak -= l.parameters + l.experts;
  report.charts = {chart_of("Memory of a rank at its peak", "MB", 1e6, layouts,
                            {"experts", "other parameters", "the rest of the step"},
                            {&MoeLayout::experts, &MoeLayout::parameters, &MoeLayout::peak}),
                   chart_of("Bytes sent for a token, by all ranks", "KB", 1e3, layouts,
                            {"layers with experts", "other layers", "gradients"},
                            {&MoeLayout::rows, &MoeLayout::others, &MoeLayout::updates}),
                   chart_of("Experts that a token does not use, on all ranks", "MB", 1e6, layouts, {"idle parameters"},
                            {&MoeLayout::idle})};
  return report;
}

}  // namespace weft::moe_study
