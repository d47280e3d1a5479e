#include "tools/moe/layouts.h"

#include "distributed/launch/compile.h"
#include "distributed/plan/report.h"
#include "framework/base/units.h"
#include "framework/cli/cli.h"
#include "framework/io/json.h"
#include "tools/moe/gap.h"
#include "tools/profile/table.h"

namespace weft::moe_study {

study::Report layout_study(tools::StepChoice choice, int64_t ranks) {
  const moe::Config config = config_of(choice);
  if (ranks < 2 || config.experts % ranks != 0)
    usage_error(str_cat("--ranks is ", ranks, "; need a divisor of the ", config.experts, " experts, 2 or more"));
  choice.fields = {{"route", "balanced"}};
  std::vector<std::vector<std::string>> rows{{"mesh", "copies of an expert", "peak of a rank", "parameters", "experts'",
                                              "idle for a token", "sent for a token", "rows of an expert"}};
  const int64_t tokens = tokens_of(choice, config);
  const auto all = static_cast<double>(ranks);
  io::OrderedJson json{{"ranks", ranks}, {"tokens", tokens}};
  for (const char* axis : {"dp", "tp", "ep"}) {
    choice.mesh = str_cat(axis, ranks);
    tools::ModelStep step(choice, Device::meta());
    step.prepare();
    const dist::PlanReport plan = step.compiled().plan("cpu");
    double held = 0, experts = 0, whole = 0, sent = 0;
    for (const dist::PlannedCell& c : plan.parameters()) {
      held += static_cast<double>(c.bytes);
      if (c.name.find(".moe.w") == std::string::npos) continue;
      experts += static_cast<double>(c.bytes);
      whole += static_cast<double>(c.type.nbytes());
    }
    for (const dist::CollectiveSum& c : plan.totals()) sent += c.sent;
    const double per_token = sent * all / static_cast<double>(tokens);
    // A token uses top_k experts once, wherever they are.
    const double used = whole * static_cast<double>(config.top_k) / static_cast<double>(config.experts),
                 idle = experts * all - used;
    const double copies = experts * all / whole;
    const double expert_rows =
        static_cast<double>(tokens * config.top_k) / static_cast<double>(config.experts) / copies;
    rows.push_back({choice.mesh, profiler::fixed(copies, 0), bytes_text(static_cast<double>(plan.peak_bytes())),
                    bytes_text(held), bytes_text(experts), bytes_text(idle), bytes_text(per_token),
                    profiler::fixed(expert_rows, 0)});
    json["layouts"].push_back({{"mesh", choice.mesh},
                               {"copies", copies},
                               {"peak_bytes", plan.peak_bytes()},
                               {"parameter_bytes", held},
                               {"expert_bytes", experts},
                               {"idle_bytes", idle},
                               {"sent_bytes_for_a_token", per_token},
                               {"rows_of_an_expert", expert_rows}});
  }
  study::Report report;
  report.text =
      str_cat("moe ", choice.config, ", ", ranks, " ranks, ", tokens, " tokens a step, ", choice.dtype, "\n\n",
              profiler::table_text(rows),
              "\nparameters, experts': bytes on one rank. idle for a token: bytes of experts on all ranks that it "
              "does not\nuse. sent: by all ranks, in forward, backward and update. rows: of each copy of an expert, "
              "for even choices.\n"
              "Plans over tp do not cut experts: each rank has all of them for its part of the tokens.\n");
  report.json = io::write_json(json, 2);
  return report;
}

}  // namespace weft::moe_study
