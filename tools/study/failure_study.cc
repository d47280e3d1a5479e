#include <algorithm>
#include <cmath>

#include "framework/base/error.h"
#include "framework/base/units.h"
#include "framework/io/json.h"
#include "tools/profile/table.h"
#include "tools/study/studies.h"

namespace weft::study {
namespace {

using io::OrderedJson;
using namespace profiler;

constexpr double kDay = 86400;
constexpr double kMostFailures = 2e6;  // failures of one simulated figure
constexpr double kDropFailures = 200;  // failures of one sample

/// A closed form and the result of a simulation.
struct Goodput {
  double closed = 0, first_order = 0;
  TimeEstimate simulated = {};  // simulated goodput
};

struct Cluster {
  double nodes = 0;
  Restart restart;
  double interval = 0;
  Drop drop;
};

Cluster cluster_of(const FailureOptions& o, double nodes) {
  Cluster c;
  c.nodes = nodes;
  c.restart = {
      .between = seconds_between_failures(nodes, o.failures), .checkpoint = o.checkpoint, .restart = o.restart};
  c.interval = o.interval > 0 ? o.interval : daly_interval(c.restart);
  c.drop = {.between = c.restart.between,
            .replicas = std::max(1.0, std::floor(nodes / o.nodes_per_replica)),
            .stall = o.stall,
            .rejoin = o.rejoin};
  return c;
}

Goodput restart_goodput_of(const Cluster& c, const Seeded& s, Random& random) {
  Goodput g{restart_goodput(c.restart, c.interval), restart_goodput_first_order(c.restart, c.interval)};
  const TimeEstimate e = simulate_interval(c.restart, c.interval, s.samples, kMostFailures, random);
  if (e.samples > 0) g.simulated = {c.interval / e.mean, c.interval / (e.mean * e.mean) * e.error, e.samples};
  return g;
}

Goodput drop_goodput_of(const Cluster& c, const Seeded& s, Random& random) {
  Goodput g{drop_goodput(c.drop), drop_goodput_first_order(c.drop)};
  g.simulated =
      simulate_drop(c.drop, std::clamp<int64_t>(s.samples / 20, 30, 1000), kDropFailures, kMostFailures, random);
  return g;
}

std::string simulated_text(const TimeEstimate& e) {
  if (e.samples == 0) return "-";
  return str_cat(percent(e.mean), " +- ", percent(e.error));
}

// The approximation does not hold where its value is below 0.
std::string first_order_text(const Goodput& g) { return g.first_order < 0 ? "-" : percent(g.first_order); }

OrderedJson json_of(const Goodput& g) {
  OrderedJson j{{"closed_form", g.closed},
                {"first_order", g.first_order < 0 ? OrderedJson() : OrderedJson(g.first_order)}};
  if (g.simulated.samples > 0)
    j["simulated"] = {
        {"mean", g.simulated.mean}, {"standard_error", g.simulated.error}, {"samples", g.simulated.samples}};
  return j;
}

OrderedJson json_of(const Cluster& c, const Goodput& restart, const Goodput& drop) {
  return {{"nodes", c.nodes},
          {"seconds_between_failures", c.restart.between},
          {"interval_seconds", c.interval},
          {"young_interval_seconds", young_interval(c.restart)},
          {"daly_interval_seconds", daly_interval(c.restart)},
          {"restart", json_of(restart)},
          {"replicas", c.drop.replicas},
          {"drop", json_of(drop)},
          {"batch_while_one_is_away", batch_share(c.drop.replicas)}};
}

std::string goodput_table(const Goodput& restart, const Goodput& drop, const std::string& interval, double replicas) {
  return table_text(
      {{"goodput", "closed form", "simulated", "first order"},
       {str_cat("restart, a checkpoint every ", interval), percent(restart.closed), simulated_text(restart.simulated),
        first_order_text(restart)},
       {replicas == 1 ? "drop the one replica" : str_cat("drop one of ", number_text(replicas), " replicas"),
        percent(drop.closed), simulated_text(drop.simulated), first_order_text(drop)}});
}

constexpr const char* kGoodputWords =
    "goodput: the share of the time that is training which stays done. +-: one standard error. first order: Young's\n"
    "1 - checkpoint/interval - (interval/2 + restart)/between and 1 - stall/between - rejoin/between/replicas, which\n"
    "hold where failures are rare; -: below 0.\n";

std::string batch_words(double replicas) {
  if (replicas == 1) return "Dropping the only replica stops the training.\n";
  return str_cat("While a replica is away, the batch is ", profiler::fixed(100 * batch_share(replicas), 2),
                 "% of its size: other training than without failures. Choose a rule for\n"
                 "the learning rate (keep it, scale it by the share, or by its square root).\n");
}

std::vector<draw::Point> as_hours(const std::vector<RunPoint>& run) {
  std::vector<draw::Point> points;
  for (const RunPoint& p : run) points.push_back({p.time / 3600, p.work / 3600});
  return points;
}

draw::Chart run_chart(const Cluster& c, double days, Random& random) {
  constexpr double kDrawnFailures = 3000, kDrawnIntervals = 5000;  // more cannot be seen
  const double end =
      std::min({days * kDay, kDrawnFailures * c.drop.between, kDrawnIntervals * (c.interval + c.restart.checkpoint)});
  const auto failures = sample_failures(c.drop.between, static_cast<int64_t>(c.drop.replicas), 0, end, random);
  draw::Chart chart(str_cat("One run of ", count_text(c.nodes, "node"), ": ",
                            count_text(static_cast<double>(failures.size()), "failure")),
                    {.label = "hours", .from = 0, .to = end / 3600},
                    {.label = "hours of training done", .from = 0, .to = end / 3600});
  chart.limit(std::vector<draw::Point>{{0, 0}, {end / 3600, end / 3600}}, "without failures");
  chart.line(as_hours(drop_run(c.drop, failures, end)), "drop the replica");
  chart.line(as_hours(restart_run(c.restart, c.interval, failures, end)), "restart all");
  return chart;
}

struct Series {
  std::vector<draw::Point> points;
  std::vector<double> errors;
  void add(double x, const TimeEstimate& e) {
    if (e.samples == 0) return;
    points.push_back({x, e.mean});
    errors.push_back(2 * e.error);
  }
};

draw::Chart nodes_chart(const FailureOptions& o, double least, double most, const Series& restart, const Series& drop) {
  draw::Chart chart("Goodput over nodes", {.label = "nodes", .from = least, .to = most, .base = 10},
                    {.label = "goodput", .from = 0, .to = 1});
  std::vector<draw::Point> lines[3];
  for (int i = 0; i <= 100; ++i) {
    const double nodes = least * std::pow(most / least, i / 100.);
    const Cluster c = cluster_of(o, nodes);
    lines[0].push_back({nodes, drop_goodput(c.drop)});
    lines[1].push_back({nodes, restart_goodput(c.restart, c.interval)});
    const double first = restart_goodput_first_order(c.restart, c.interval);
    if (first >= 0) lines[2].push_back({nodes, first});
  }
  chart.line(lines[0], "drop the replica");
  chart.line(lines[1], "restart all");
  chart.limit(lines[2], "restart, first order");
  chart.estimates(drop.points, drop.errors, "drop, simulated");
  chart.estimates(restart.points, restart.errors, "restart, simulated");
  chart.remark("bars: 2 standard errors");
  return chart;
}

draw::Chart interval_chart(const Cluster& c, const Seeded& s, Random& random) {
  const double best = daly_interval(c.restart), least = best / 20, most = best * 20;
  draw::Chart chart(str_cat("Restart over the checkpoint interval, ", count_text(c.nodes, "node")),
                    {.label = "seconds of work between checkpoints", .from = least, .to = most, .base = 10},
                    {.label = "goodput", .from = 0, .to = 1});
  std::vector<draw::Point> line;
  Series simulated;
  for (int i = 0; i <= 100; ++i) {
    Cluster other = c;
    other.interval = least * std::pow(most / least, i / 100.);
    line.push_back({other.interval, restart_goodput(c.restart, other.interval)});
    if (i % 10 == 0) simulated.add(other.interval, restart_goodput_of(other, s, random).simulated);
  }
  chart.line(line, "closed form");
  chart.estimates(simulated.points, simulated.errors, "simulated");
  double y = 0.95;
  for (const auto& [interval, name] : {std::pair(best, "Daly"), {young_interval(c.restart), "Young"}}) {
    chart.limit(std::vector<draw::Point>{{interval, 0}, {interval, 1}}, "");
    chart.note({interval, y}, str_cat(name, ": ", time_text(interval)));
    y -= 0.12;
  }
  return chart;
}

}  // namespace

StudyReport failure_study(const FailureOptions& o, const Seeded& s) {
  Random random(s.seed);
  const Cluster c = cluster_of(o, o.nodes);
  const Goodput restart = restart_goodput_of(c, s, random), drop = drop_goodput_of(c, s, random);
  StudyReport report;
  report.text = str_cat(count_text(o.nodes, "node"), ", ", count_text(o.failures, "failure"),
                        " in 1000 node-days: a failure every ", time_text(c.restart.between), "\n\n",
                        goodput_table(restart, drop, time_text(c.interval), c.drop.replicas), "\n", kGoodputWords,
                        batch_words(c.drop.replicas), "\n");
  // From a hundredth to ten times of the nodes.
  OrderedJson over = OrderedJson::array();
  std::vector<std::vector<std::string>> rows{
      {"nodes", "failure every", "checkpoint every", "restart", "simulated", "drop", "simulated"}};
  Series restarts, drops;
  double least = 0, most = 0;
  for (int k = -4; k <= 2; ++k) {
    const double nodes = std::round(o.nodes * std::pow(10, k / 2.));
    if (nodes < 1) continue;
    least = least > 0 ? least : nodes;
    most = nodes;
    const Cluster at = cluster_of(o, nodes);
    const Goodput r = restart_goodput_of(at, s, random), d = drop_goodput_of(at, s, random);
    rows.push_back({number_text(nodes), time_text(at.restart.between), time_text(at.interval), percent(r.closed),
                    simulated_text(r.simulated), percent(d.closed), simulated_text(d.simulated)});
    over.push_back(json_of(at, r, d));
    restarts.add(nodes, r.simulated);
    drops.add(nodes, d.simulated);
  }
  report.text += table_text(rows);
  OrderedJson json = json_of(c, restart, drop);
  json["over_nodes"] = over;
  report.json = io::write_json(json, 2);
  report.charts = {run_chart(c, o.days, random), nodes_chart(o, least, most, restarts, drops),
                   interval_chart(c, s, random)};
  return report;
}

StudyReport run_study(const StudyRunOptions& run, const FailureOptions& options, const Seeded& s) {
  Random random(s.seed);
  const double nodes = std::ceil(run.gpus / run.gpus_per_node), ideal = run_seconds(run.flops, run.gpus, run.gpu_flops);
  const Cluster c = cluster_of(options, nodes);
  const Goodput restart = restart_goodput_of(c, s, random), drop = drop_goodput_of(c, s, random);
  const double failures = expected_failures(ideal, nodes, options.failures);
  // The number of failures in the time of a run, sampled.
  const int64_t runs = static_cast<int64_t>(std::min(static_cast<double>(s.samples), kMostFailures / failures));
  TimeEstimate sampled;
  if (runs >= 30)
    sampled = estimate(
        runs, [&] { return static_cast<double>(sample_failures(c.drop.between, 1, 0, ideal, random).size()); });
  StudyReport report;
  report.text = str_cat(number_text(run.flops), " operations on ", count_text(run.gpus, "GPU"), " (",
                        count_text(nodes, "node"), ") at ", number_text(run.gpu_flops / 1e12), " TFLOP/s each\n\n");
  std::vector<std::vector<std::string>> rows{{"", "goodput", "time", "GPU-hours", "failures"}};
  OrderedJson json{{"flops", run.flops}, {"gpus", run.gpus}, {"gpu_flops", run.gpu_flops}, {"nodes", nodes}};
  const auto add = [&](const char* name, const char* key, double goodput) {
    const double seconds = ideal / goodput, hours = seconds / 3600 * run.gpus,
                 count = expected_failures(seconds, nodes, options.failures);
    const bool ends = std::isfinite(count);  // a goodput of 0, or nearly: never
    rows.push_back({name, percent(goodput), ends ? time_text(seconds) : "never", ends ? number_text(hours) : "-",
                    ends ? number_text(count) : "-"});
    json[key] = {{"goodput", goodput}, {"days", seconds / kDay}, {"gpu_hours", hours}, {"failures", count}};
  };
  add("no time lost", "ideal", 1);
  add("restart all", "restart", restart.closed);
  add("drop the replica", "drop", drop.closed);
  report.text += table_text(rows);
  if (sampled.samples > 0) {
    report.text +=
        str_cat("\n", sampled.samples, " simulated runs without lost time had ", profiler::fixed(sampled.mean, 2),
                " +- ", profiler::fixed(sampled.error, 2), " failures; expected: ", profiler::fixed(failures, 2), "\n");
    json["simulated_failures"] = {{"mean", sampled.mean}, {"standard_error", sampled.error}};
  }
  report.text +=
      str_cat("a failure every ", time_text(c.restart.between), " (", number_text(options.failures),
              " in 1000 node-days)\n\n", goodput_table(restart, drop, time_text(c.interval), c.drop.replicas), "\n",
              kGoodputWords, batch_words(c.drop.replicas));
  json["cluster"] = json_of(c, restart, drop);
  report.json = io::write_json(json, 2);
  report.charts = {run_chart(c, ideal / kDay, random), interval_chart(c, s, random)};
  return report;
}

std::string time_text(double seconds) {
  if (seconds < 90) return seconds_text(seconds);
  if (seconds < 90 * 60) return str_cat(number_text(seconds / 60), " min");
  if (seconds < 2 * kDay) return str_cat(number_text(seconds / 3600), " h");
  return str_cat(number_text(seconds / kDay), " d");
}

}  // namespace weft::study
