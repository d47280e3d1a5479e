#include <algorithm>
#include <cmath>

#include "framework/base/error.h"
#include "framework/base/units.h"
#include "framework/io/json.h"
#include "tools/profile/table.h"
#include "tools/study/studies.h"

namespace weft::study {
namespace {

using profiler::number_text;
using profiler::percent;

constexpr double kLeastGpus = 100, kMostGpus = 1e9;
constexpr int kMostRanks = 128;
constexpr double kGoodShare = 0.7;  // share of its speed alone that a GPU should reach in a group of tensor parallelism

}  // namespace

StudyReport latency_wall_study(const LatencyWall& w) {
  const double step = least_step(w), wall = latency_wall(w);
  io::OrderedJson json{{"least_step_seconds", step}, {"wall_flops", wall}};
  std::vector<std::vector<std::string>> rows{
      {"GPUs", "largest run", "parameters", "tokens", "steps", "a step", "of it latency"}};
  for (double gpus = kLeastGpus; gpus <= kMostGpus; gpus *= 10) {
    const double flops = largest_run(w, gpus);
    const RunSize size = run_size(flops, w.tokens_per_parameter);
    const double steps = size.tokens / w.batch_tokens, seconds = w.seconds / steps;
    rows.push_back({number_text(gpus), number_text(flops), number_text(size.parameters), number_text(size.tokens),
                    number_text(steps), seconds_text(seconds), percent(step / seconds)});
    json["over_gpus"].push_back({{"gpus", gpus},
                                 {"flops", flops},
                                 {"parameters", size.parameters},
                                 {"tokens", size.tokens},
                                 {"steps", steps},
                                 {"step_seconds", seconds}});
  }
  const RunSize size = run_size(wall, w.tokens_per_parameter);
  rows.push_back({"any number", number_text(wall), number_text(size.parameters), number_text(size.tokens),
                  number_text(size.tokens / w.batch_tokens), seconds_text(step), percent(1)});
  StudyReport report;
  report.text = str_cat("A step of ", number_text(w.layers), " layers with ", number_text(w.collectives),
                        " dependent collectives of ", seconds_text(w.latency), " each takes at least ",
                        seconds_text(step), " on any number of GPUs.\n1e6 steps take ", time_text(1e6 * step), ". In ",
                        time_text(w.seconds), " no run is larger than ", number_text(wall), " operations.\n\n",
                        profiler::table_text(rows), "\nBatches of ", number_text(w.batch_tokens),
                        " tokens: larger ones would not need fewer steps. ", number_text(w.tokens_per_parameter),
                        " tokens for each parameter, ", number_text(w.gpu_flops / 1e12), " TFLOP/s a GPU.\n");
  report.json = io::write_json(json, 2);

  std::vector<draw::Point> run, compute, latency;
  for (int i = 0; i <= 100; ++i) {
    const double gpus = kLeastGpus * std::pow(kMostGpus / kLeastGpus, i / 100.);
    run.push_back({gpus, largest_run(w, gpus)});
  }
  const double top = std::max(wall * 10, run.back().y);
  for (const draw::Point& p : run) {
    const double flops = p.x * w.gpu_flops * w.seconds;
    if (flops <= top) compute.push_back({p.x, flops});
    latency.push_back({p.x, wall});
  }
  draw::Chart chart(str_cat("The largest training run in ", time_text(w.seconds)),
                    {.label = "GPUs", .from = kLeastGpus, .to = kMostGpus, .base = 10},
                    {.label = "operations", .from = run.front().y / 2, .to = top, .base = 10});
  chart.line(run, "largest run");
  if (compute.size() > 1) chart.line(compute, "without latency");
  chart.limit(latency, str_cat("latency wall: ", number_text(wall)));
  report.charts = {chart};
  return report;
}

StudyReport tp_wall_study(const TpBlock& b) {
  const TpTime one = tp_time(b, 1);
  io::OrderedJson json{{"all_reduce_bytes", all_reduce_bytes(b)}};
  std::vector<std::vector<std::string>> rows{
      {"tp", "links", "one all-reduce", "communication", "compute", "block", "speed", "a GPU's share"}};
  std::vector<draw::Bar> bars;
  std::vector<std::string> names;
  double best = HUGE_VAL, worst = 0;
  int best_ranks = 1, good_ranks = 1;
  for (int n = 1; n <= kMostRanks; n *= 2) {
    const TpTime t = tp_time(b, n);
    const char* links = n == 1 ? "-" : tp_nodes(b, n) == 1 ? "node" : "network";
    rows.push_back({number_text(n), links, n == 1 ? "-" : seconds_text(t.communication / b.all_reduces),
                    n == 1 ? "-" : seconds_text(t.communication), seconds_text(t.compute), seconds_text(t.step()),
                    str_cat(profiler::fixed(one.step() / t.step(), 2), "x"), percent(one.step() / t.step() / n)});
    json["over_ranks"].push_back({{"ranks", n},
                                  {"links", links},
                                  {"communication", t.communication},
                                  {"compute", t.compute},
                                  {"block", t.step()}});
    bars.push_back({static_cast<double>(bars.size()), {{0, 1e3 * t.compute}, {1, 1e3 * t.communication}}});
    names.push_back(number_text(n));
    if (good_ranks == n / 2 && one.step() / t.step() / n >= kGoodShare) good_ranks = n;
    if (t.step() < best) best = t.step(), best_ranks = n;
    worst = std::max(worst, t.step());
  }
  StudyReport report;
  report.text =
      str_cat("Forward pass of a block of ", number_text(b.parameters), " parameters, ", number_text(b.tokens),
              " tokens of ", number_text(b.dim), " values: ", number_text(b.all_reduces), " all-reduces of ",
              bytes_text(all_reduce_bytes(b)), "\n", b.machine.name, ": nodes of ", b.machine.links.node, ", ",
              number_text(b.machine.products_of(kBFloat16) * b.machine.reached / 1e12),
              " TFLOP/s of 16-bit products a GPU; all-reduces are priced as in //tools:plan\n\n",
              profiler::table_text(rows), "\nUp to tp ", good_ranks, " a GPU's share is ", percent(kGoodShare),
              good_ranks < kMostRanks ? " or more, and under it beyond. " : " or more. ",
              "The fastest of these rows is tp ", best_ranks,
              ".\nMore ranks share the compute, but each still sends 2 (n - 1) / n of every all-reduce.\n"
              "A GPU's share: the speed per rank, relative to one GPU alone.\n");
  json["ranks_of_70_percent"] = good_ranks;
  report.json = io::write_json(json, 2);
  draw::Chart chart("Time of a block over the ranks of tensor parallelism", draw::x_names(names, "ranks"),
                    {.label = "ms", .from = 0, .to = 1e3 * worst * 1.05});
  const std::vector<std::string> labels{"compute", "all-reduces"};
  chart.bars(labels, bars, 0.6);
  report.charts = {chart};
  return report;
}

}  // namespace weft::study
