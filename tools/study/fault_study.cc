#include <algorithm>
#include <cmath>
#include <thread>

#include "distributed/control/group/simulation/simulation.h"
#include "framework/base/error.h"
#include "framework/base/units.h"
#include "framework/io/json.h"
#include "tools/profile/table.h"
#include "tools/study/studies.h"

namespace weft::study {
namespace {

using control::Drill;
using control::GroupRun;
using io::OrderedJson;
using namespace profiler;

struct DrillFault {
  Drill::Fault fault;
  const char* name;
};
constexpr DrillFault kDrillFaults[] = {
    {Drill::Fault::kReported, "killed, its launcher reports it"},
    {Drill::Fault::kClosed, "killed, its connection ends"},
    {Drill::Fault::kStopped, "stopped, and continues"},
};

int64_t milliseconds(double seconds) { return std::llround(1e3 * seconds); }

Drill drill_of(const FaultOptions& o, Drill::Fault fault) {
  return {.replicas = static_cast<int64_t>(o.replicas),
          .time = milliseconds(60 * o.minutes),
          .between = milliseconds(o.between),
          .step = milliseconds(o.step),
          .form = milliseconds(o.stall),
          .again = milliseconds(o.again),
          .heal = milliseconds(o.heal),
          .fault = fault};
}

/// The goodput in closed form, to first order. A failure and a return are a view each, with its groups.
double first_order(const FaultOptions& o, Drill::Fault fault) {
  const control::GroupConfig config;
  double notice = 0, again = o.again;  // until the service counts the replica as gone; from then until it is back
  if (fault == Drill::Fault::kClosed) notice = std::min(1e-3 * static_cast<double>(config.reconnect_ms), again);
  if (fault == Drill::Fault::kStopped) notice = 1e-3 * static_cast<double>(config.silence_ms);
  if (fault == Drill::Fault::kClosed) again -= notice;
  return drop_goodput_first_order(
      {.between = o.between, .replicas = o.replicas, .stall = notice + 2 * o.stall + o.heal, .rejoin = again});
}

double goodput_of(const Drill& d, const GroupRun& run) {
  return static_cast<double>(run.parts * d.step) / static_cast<double>(d.replicas * d.time);
}

std::string milliseconds_text(int64_t ms) { return seconds_text(1e-3 * static_cast<double>(ms)); }

/// The events of a schedule, one a line.
std::string events_of(uint64_t seed, int64_t limit_ms) {
  control::GroupSchedule schedule = control::schedule_of(seed);
  schedule.limit = limit_ms;
  const GroupRun run = control::simulate(schedule, true);
  std::string text = str_cat("seed ", seed, ": ", schedule.starts.size(), " replicas, ", schedule.config.replicas,
                             " at a time, at least ", schedule.config.replicas_min, ", ", schedule.steps, " steps, ",
                             schedule.faults.size(), " faults\n");
  for (const std::string& line : run.log) text += str_cat("  ", line, "\n");
  return text;
}

}  // namespace

StudyReport fault_study(const FaultOptions& o, const Seeded& s) {
  StudyReport report;
  const int threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  const control::SeedRuns seeds = control::simulate_seeds(s.seed, static_cast<int64_t>(o.seeds), threads, o.limit_ms);
  if (seeds.failures.empty()) {
    if (o.seeds == 1) report.text = events_of(s.seed, o.limit_ms) + "\n";
    report.text += str_cat(text_of(seeds), " of virtual time.\nNone failed.\n\n");
  }
  for (const auto& [seed, problem] : seeds.failures) {
    report.text += events_of(seed, o.limit_ms) + "\n";
    report.problem =
        str_cat("the schedule of seed ", seed, " failed ", problem, "; to run it again, use --faults 1 --seed ", seed);
  }
  OrderedJson json{{"schedules", o.seeds}, {"failed", seeds.failures.size()}, {"longest_ms", seeds.longest}};

  std::vector<std::vector<std::string>> rows{{"a replica is", "views", "heals", "stall", "stall of a return",
                                              "steps lost", "samples", "goodput", "first order"}};
  const double seconds = 60 * o.minutes;
  draw::Chart chart(
      str_cat("Training of ", number_text(o.replicas), " replicas, a failure in each ", time_text(o.between)),
      {.label = "seconds", .from = 0, .to = seconds}, {.label = "seconds of training done", .from = 0, .to = seconds},
      {.legend = 240});
  chart.limit(std::vector<draw::Point>{{0, 0}, {seconds, seconds}}, "without failures");
  for (const auto& [fault, name] : kDrillFaults) {
    const Drill d = drill_of(o, fault);
    const GroupRun run = control::simulate(control::schedule_of(d, s.seed));
    if (!run.problem.empty())
      report.problem = str_cat("the drill of seed ", s.seed, " (", name, ") failed ", run.problem);
    const double goodput = goodput_of(d, run), closed = first_order(o, fault);
    rows.push_back({name, str_cat(run.counts.views), str_cat(run.counts.heals), milliseconds_text(run.longest),
                    milliseconds_text(run.longest_of_heal), str_cat(run.lost), str_cat(run.parts), percent(goodput),
                    closed < 0 ? "-" : percent(closed)});
    json["drill"].push_back({{"fault", name},
                             {"views", run.counts.views},
                             {"heals", run.counts.heals},
                             {"longest_stall_ms", run.longest},
                             {"longest_stall_of_return_ms", run.longest_of_heal},
                             {"steps_lost", run.lost},
                             {"samples", run.parts},
                             {"goodput", goodput},
                             {"first_order", closed < 0 ? OrderedJson() : OrderedJson(closed)}});
    std::vector<draw::Point> line;
    for (const auto& [time, parts] : run.progress)
      line.push_back({1e-3 * static_cast<double>(time),
                      1e-3 * static_cast<double>(parts * d.step) / static_cast<double>(d.replicas)});
    chart.line(line, name);
  }
  const Restart restart{.between = o.between, .checkpoint = o.checkpoint, .restart = o.restart};
  const double interval = daly_interval(restart), restarts = restart_goodput(restart, interval);
  rows.push_back(
      {str_cat("or restart all, a checkpoint every ", time_text(interval)), "", "", "", "", "", "", percent(restarts)});
  json["restart_goodput"] = restarts;
  report.text += str_cat(
      number_text(o.replicas), " replicas for ", time_text(60 * o.minutes), ", steps of ", seconds_text(o.step),
      ", a failure in each ", time_text(o.between), ". Groups of a view take ", seconds_text(o.stall), ".\nAfter ",
      seconds_text(o.again), " the replica comes back, and takes the state in ", seconds_text(o.heal), ".\n\n",
      table_text(rows),
      "\nstall: the longest time between two steps, without and with the return of a replica. samples: one for each\n"
      "replica and step. goodput: the share of the samples without failures. first order: 1 - stall/between -\n"
      "away/between/replicas. The last row is a closed form (Daly 2006).\n");
  report.json = io::write_json(json, 2);
  report.charts = {chart};
  return report;
}

}  // namespace weft::study
