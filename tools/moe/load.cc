#include "tools/moe/load.h"

#include <algorithm>
#include <numeric>

#include "compiler/cost/machine/best_of_runs.h"
#include "framework/base/units.h"
#include "framework/cli/cli.h"
#include "framework/io/json.h"
#include "models/nn/transformer/expert_choice.h"
#include "tools/plan/limits.h"
#include "tools/profile/table.h"
#include "weft.h"

namespace weft::moe_study {
namespace {

using profiler::fixed;

struct LoadPhase {
  std::vector<int64_t> rows;  // index: rank
  std::vector<double> ms;
  double rows_factor = 1;  // most over mean
};

LoadPhase phase_of(const LoadStudyOptions& o, const nn::ExpertChoice& choice) {
  const Tensor chosen = choice.choose(zeros({o.ranks * o.tokens, o.experts}), o.top_k);
  const std::vector<int64_t> counts = sort_by_expert(chosen, o.experts).counts.to_vector<int64_t>();
  LoadPhase p{.ms = expert_ms(o, counts)};
  const auto local = static_cast<std::ptrdiff_t>(o.experts / o.ranks);
  for (auto at = counts.begin(); at != counts.end(); at += local)
    p.rows.push_back(std::accumulate(at, at + local, int64_t{0}));
  const double mean = static_cast<double>(o.tokens * o.top_k);
  p.rows_factor = static_cast<double>(*std::max_element(p.rows.begin(), p.rows.end())) / mean;
  return p;
}

}  // namespace

std::vector<double> expert_ms(const LoadStudyOptions& o, const std::vector<int64_t>& rows) {
  if (o.experts % o.ranks != 0)
    usage_error(str_cat("--ranks is ", o.ranks, "; need a divisor of the ", o.experts, " experts"));
  const int64_t local = o.experts / o.ranks;
  const Tensor gate = randn({local, o.dim, o.hidden}) * 0.02, up = randn({local, o.dim, o.hidden}) * 0.02,
               down = randn({local, o.hidden, o.dim}) * 0.02;
  std::vector<double> ms;
  for (int64_t r = 0; r < o.ranks; ++r) {
    std::vector<int64_t> offsets{0};
    for (int64_t e = 0; e < local; ++e) offsets.push_back(offsets.back() + rows[r * local + e]);
    const Tensor x = randn({offsets.back(), o.dim}), at = Tensor::from_vector<int64_t>(offsets, {local + 1});
    ms.push_back(1e3 * internal::best_seconds(static_cast<int>(o.rounds) + 1, [&] {
                   const Tensor h = silu(grouped_matmul(x, gate, at)) * grouped_matmul(x, up, at);
                   grouped_matmul(h, down, at).data<float>();
                 }));
  }
  return ms;
}

study::StudyReport load_study(const LoadStudyOptions& o, const std::vector<std::string>& routes) {
  manual_seed(0);
  const LoadPhase even = phase_of(o, nn::ExpertChoice::parse("balanced"));
  const double even_ms = *std::max_element(even.ms.begin(), even.ms.end());
  const double sent = planner::dispatch_bytes(static_cast<double>(o.tokens), static_cast<double>(o.top_k),
                                              static_cast<double>(o.dim), static_cast<double>(o.ranks));
  std::vector<std::vector<std::string>> rows{
      {"route", "rows by rank", "most / mean", "expected", "slowest ms", "times"}};
  io::OrderedJson json{{"ranks", o.ranks}, {"experts", o.experts}, {"tokens", o.tokens}, {"bytes", sent}};
  std::vector<draw::Bar> bars;
  std::vector<std::string> labels;
  double most = 0;
  for (size_t k = 0; k < routes.size(); ++k) {
    const nn::ExpertChoice choice = nn::ExpertChoice::parse(routes[k]);
    const LoadPhase p = choice.law == nn::ExpertChoice::Law::kBalanced ? even : phase_of(o, choice);
    const double slowest = *std::max_element(p.ms.begin(), p.ms.end());
    // The mean share of the fullest rank.
    const std::vector<double> shares = choice.shares(o.experts);
    std::vector<double> by_rank(static_cast<size_t>(o.ranks));
    for (int64_t e = 0; e < o.experts; ++e) by_rank[e / (o.experts / o.ranks)] += shares[e];
    const double expected = planner::expert_skew(by_rank.data(), static_cast<int>(o.ranks));
    std::string text;
    for (int64_t n : p.rows) text += str_cat(text.empty() ? "" : " ", n);
    rows.push_back(
        {routes[k], text, fixed(p.rows_factor, 2), fixed(expected, 2), fixed(slowest, 3), fixed(slowest / even_ms, 2)});
    json["routes"].push_back({{"route", routes[k]},
                              {"rows", p.rows},
                              {"ms", p.ms},
                              {"most_over_mean", p.rows_factor},
                              {"expected", expected},
                              {"times", slowest / even_ms}});
    labels.push_back(routes[k]);
    for (int64_t r = 0; r < o.ranks; ++r) {
      const double width = static_cast<double>(routes.size()) + 1;
      bars.push_back(
          {static_cast<double>(r) + (static_cast<double>(k) + 1) / width - 0.5, {{k, static_cast<double>(p.rows[r])}}});
      most = std::max(most, static_cast<double>(p.rows[r]));
    }
  }
  study::StudyReport report;
  report.text =
      str_cat(profiler::count_text(static_cast<double>(o.ranks), "rank"), ", ", o.experts, " experts, ", o.tokens,
              " tokens of ", o.dim, " values each, ", o.top_k, " choices\n\n", profiler::table_text(rows),
              "\nexpected: the law's share of the fullest rank times the ranks. times: the slowest rank's experts\n"
              "beside the times of even choices, measured one rank at a time.\nA rank sends ",
              bytes_text(sent), " in bf16 to dispatch and the same to combine, forward and again backward.\n");
  report.json = io::write_json(json, 2);
  std::vector<std::string> names;
  for (int64_t r = 0; r < o.ranks; ++r) names.push_back(str_cat("rank ", r));
  report.charts.emplace_back("Rows of each rank's experts", draw::x_names(names),
                             draw::Axis{.label = "rows", .from = 0, .to = most * 1.1});
  report.charts.back().bars(labels, bars, 0.8 / (static_cast<double>(routes.size()) + 1));
  return report;
}

}  // namespace weft::moe_study
