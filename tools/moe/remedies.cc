#include "tools/moe/remedies.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>

#include "framework/cli/cli.h"
#include "framework/io/json.h"
#include "models/train/metrics.h"
#include "ops/composite/layers/moe.h"
#include "tools/moe/load.h"
#include "tools/profile/table.h"

namespace weft::moe_study {
namespace {

using profiler::fixed;
using profiler::percent;

double mean_of(const std::vector<double>& v) {
  return std::accumulate(v.begin(), v.end(), 0.0) / static_cast<double>(std::max<size_t>(1, v.size()));
}

struct RemedyRun {
  std::string name;
  nn::ConfigMap fields;
  std::unique_ptr<precision::Training> training = nullptr;
  std::vector<double> load = {}, losses = {}, dropped = {}, ms = {};  // index: step; means over the layers
  std::vector<int64_t> counts = {};                                   // counts of the last step
  int64_t dead = 0;
};

/// The mean over the last tenth of the steps.
double late(const std::vector<double>& v) {
  const size_t n = std::max<size_t>(1, v.size() / 10);
  return mean_of({v.end() - static_cast<std::ptrdiff_t>(n), v.end()});
}

double share_of_first(const nn::LanguageModel& model, const Tensor& tokens) {
  const NoGrad guard;
  const Tensor counts_LE = model.loss(tokens, tokens).expert_counts.to(kFloat64);
  return (sum(counts_LE.slice(1, 0, 1)) / sum(counts_LE)).item<double>();
}

draw::Chart chart_over_steps(const std::string& title, const std::string& label, const std::vector<RemedyRun>& runs,
                             std::vector<double> RemedyRun::*values, double from, double to) {
  draw::Chart chart(title, {.label = "step", .from = 0, .to = static_cast<double>(runs[0].load.size())},
                    {.label = label, .from = from, .to = to});
  for (const RemedyRun& r : runs) {
    std::vector<draw::Point> points;
    const std::vector<double>& v = r.*values;
    const size_t window = std::max<size_t>(1, v.size() / 40);  // steps whose mean is a point
    for (size_t i = 0; i + window <= v.size(); i += window)
      points.push_back({static_cast<double>(i) + static_cast<double>(window + 1) / 2,
                        std::accumulate(v.begin() + static_cast<std::ptrdiff_t>(i),
                                        v.begin() + static_cast<std::ptrdiff_t>(i + window), 0.0) /
                            static_cast<double>(window)});
    chart.line(points, r.name);
  }
  return chart;
}

}  // namespace

void skew_start(const nn::LanguageModel& model, const Tensor& tokens, double share) {
  Parameter embedding = model.get_parameter("tok.weight");
  std::vector<std::pair<Parameter, Tensor>> routers;  // parameter and first weight
  for (const auto& [name, p] : model.named_parameters())
    if (name.ends_with(".moe.router.weight")) routers.emplace_back(p, p.value());
  const Tensor rows_VD = embedding.value();
  Tensor common_D = randn({rows_VD.size(1)});
  common_D = common_D / sqrt(sum(square(common_D)));
  // The direction's length equals the length of a row without it.
  embedding.set(rows_VD + common_D * sqrt(mean(sum(square(rows_VD), -1))));
  const auto share_at = [&](double strength) {
    for (auto& [router, weight_ED] : routers) {
      const Tensor first_E1 = (arange(weight_ED.size(0)) < 1).to(kFloat32).unsqueeze(1);
      router.set(weight_ED + first_E1 * common_D * strength);
    }
    return share_of_first(model, tokens);
  };
  double low = 0, high = 1e-3, got = share_at(high);
  while (got < share && high < 1e3) low = high, got = share_at(high *= 2);
  for (int i = 0; i < 30 && std::abs(got - share) > 0.005; ++i) {
    const double middle = (low + high) / 2;
    got = share_at(middle);
    (got < share ? low : high) = middle;
  }
  WEFT_CHECK_AS(kFailedPrecondition, std::abs(got - share) <= 0.01, "expert 0 has ", got,
                " of the choices at the start; need ", share, "; use a larger --batch_size or --seq_len");
}

study::StudyReport remedy_study(precision::RunOptions run, const RemedyOptions& o) {
  run.model = "moe";
  // One choice of a token, weighted by its score: normalised weights would be 1, and the router would learn nothing.
  for (const auto& [field, value] : {std::pair("top_k", "1"),
                                     {"normalize", "false"},
                                     {"aux_loss", "0"},
                                     {"bias_rate", "0"},
                                     {"capacity_factor", "0"}})
    run.fields[field] = value;
  std::vector<RemedyRun> runs;
  runs.push_back({"nothing", {}});
  runs.push_back({str_cat("dropping above ", o.capacity_factor), {{"capacity_factor", str_cat(o.capacity_factor)}}});
  runs.push_back({str_cat("auxiliary loss ", o.aux_loss), {{"aux_loss", str_cat(o.aux_loss)}}});
  runs.push_back({str_cat("bias ", o.bias_rate, " a step"), {{"bias_rate", str_cat(o.bias_rate)}}});
  const nn::ConfigMap fields = run.fields;
  for (RemedyRun& r : runs) {
    run.fields = fields;
    for (const auto& [field, value] : r.fields) run.fields[field] = value;
    r.training = std::make_unique<precision::Training>(run, precision::training_modes().front());
    manual_seed(run.seed + 1);
    skew_start(r.training->model(), r.training->next_batch().first, o.skew);
  }
  for (int64_t step = 0; step < o.steps; ++step)
    for (RemedyRun& r : runs) {
      r.losses.push_back(r.training->step());
      r.ms.push_back(r.training->seconds() * 1e3);
      r.counts = r.training->expert_counts();
      const train::ExpertLoad load(r.counts, r.training->dropped());
      r.load.push_back(mean_of(load.max_over_mean));
      r.dropped.push_back(mean_of(load.dropped));
      r.dead = std::accumulate(load.dead.begin(), load.dead.end(), int64_t{0});
    }

  // The experts' phase on ranks with one expert each, as in V29. Dropping computes all places of an expert.
  const nn::ConfigMap config = runs[0].training->model().config();
  const int64_t experts = std::stoll(config.at("experts")), tokens = run.batch_size * run.seq_len,
                layers = static_cast<int64_t>(runs[0].counts.size()) / experts;
  const LoadStudyOptions phase{.ranks = experts,
                               .experts = experts,
                               .dim = std::stoll(config.at("dim")),
                               .hidden = std::stoll(config.at("ffn")),
                               .rounds = o.rounds};
  const auto slowest_ms = [&](const std::vector<int64_t>& rows) {
    const std::vector<double> ms = expert_ms(phase, rows);
    return *std::max_element(ms.begin(), ms.end());
  };
  const double even_ms = slowest_ms(std::vector<int64_t>(static_cast<size_t>(experts), tokens / experts));
  const double start = runs[0].load.front();
  std::vector<std::vector<std::string>> rows{{"against uneven load", "max / mean", "dead", "dropped", "slowest rank",
                                              "measured", "recovered", "ms a step", "loss"}};
  io::OrderedJson json{{"steps", o.steps}, {"tokens", tokens}, {"experts", experts}, {"start_max_over_mean", start}};
  for (RemedyRun& r : runs) {
    const bool drops = r.fields.count("capacity_factor") > 0;
    const auto places = drops ? expert_capacity(tokens, 1, experts, o.capacity_factor) : 0;
    const double load = late(r.load),
                 slowest = drops ? static_cast<double>(places * experts) / static_cast<double>(tokens) : load;
    double ms = 0;
    for (int64_t l = 0; l < layers; ++l) {
      std::vector<int64_t> of_layer(r.counts.begin() + l * experts, r.counts.begin() + (l + 1) * experts);
      if (drops) std::fill(of_layer.begin(), of_layer.end(), places);
      ms += slowest_ms(of_layer) / static_cast<double>(layers);
    }
    const double recovered = (start - slowest) / (start - 1);
    // The minimum over late steps excludes a busy machine's disturbances.
    const double step_ms =
        *std::min_element(r.ms.end() - static_cast<std::ptrdiff_t>(std::max<size_t>(1, r.ms.size() / 4)), r.ms.end());
    rows.push_back({r.name, fixed(load, 2), str_cat(r.dead, " of ", r.counts.size()), percent(late(r.dropped)),
                    fixed(slowest, 2), fixed(ms / even_ms, 2), percent(recovered), fixed(step_ms, 1),
                    fixed(late(r.losses), 3)});
    json["remedies"].push_back({{"name", r.name},
                                {"max_over_mean", load},
                                {"dead", r.dead},
                                {"dropped", late(r.dropped)},
                                {"slowest_rank", slowest},
                                {"slowest_rank_measured", ms / even_ms},
                                {"recovered", recovered},
                                {"step_ms", step_ms},
                                {"loss", late(r.losses)},
                                {"max_over_mean_by_step", r.load},
                                {"loss_by_step", r.losses}});
  }
  study::StudyReport report;
  report.text = str_cat(
      "moe ", run.config, ", ", run.batch_size, " x ", run.seq_len, " tokens, one choice of ", experts,
      " experts, trained for ", o.steps, " steps", run.mesh.empty() ? "" : str_cat(" on ", run.mesh),
      "\nAt the start expert 0 has ", percent(o.skew), " of the choices, so the fullest expert has ", fixed(start, 2),
      " times the mean.\n\n", profiler::table_text(rows),
      "\nmax / mean, dropped, loss (without the auxiliary one): means of the last tenth of the steps. slowest rank: "
      "rows\nthat it computes over the mean, with an expert on each rank; measured: its time over the time of even "
      "choices,\none rank at a time. recovered: of the time that the start costs above even choices.\n");
  report.json = io::write_json(json, 2);
  double most = 0, least_loss = HUGE_VAL, most_loss = 0;
  for (const RemedyRun& r : runs) {
    most = std::max(most, *std::max_element(r.load.begin(), r.load.end()));
    least_loss = std::min(least_loss, *std::min_element(r.losses.begin(), r.losses.end()));
    most_loss = std::max(most_loss, *std::max_element(r.losses.begin(), r.losses.end()));
  }
  report.charts.push_back(chart_over_steps("Choices of the fullest expert over the mean", "max / mean", runs,
                                           &RemedyRun::load, 0, std::max(most, 1.0) * 1.1));
  report.charts.back().limit(std::vector<draw::Point>{{0, 1}, {static_cast<double>(o.steps), 1}}, "even");
  report.charts.push_back(
      chart_over_steps("Loss", "nats", runs, &RemedyRun::losses, std::floor(least_loss), std::ceil(most_loss)));
  return report;
}

}  // namespace weft::moe_study
