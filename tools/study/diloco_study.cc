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

constexpr double kUtilisation = 0.9;  // utilisation of the reported bandwidth

struct Method {
  std::string name;
  Outer outer;
};

std::vector<Method> methods(const DilocoOptions& o) {
  const auto outer = [&](double bits, double steps, double fragments, double overlap) {
    return Outer{o.parameters, o.replicas, bits / 8, steps, fragments, overlap};
  };
  const std::string every = str_cat("every ", number_text(o.inner_steps), " steps");
  return {{"data parallel, f32", outer(32, 1, 1, 0)},
          {"data parallel, bf16", outer(16, 1, 1, 0)},
          {str_cat("DiLoCo, f32, ", every), outer(32, o.inner_steps, 1, 0)},
          {str_cat("DiLoCo, bf16, ", every), outer(16, o.inner_steps, 1, 0)},
          {str_cat("streaming, ", number_text(o.outer_bits), " bit, ", number_text(o.fragments), " parts"),
           outer(o.outer_bits, o.inner_steps, o.fragments, o.overlap_steps)}};
}

std::string gbit_text(double bytes_per_second) {
  return std::isfinite(bytes_per_second) ? number_text(bytes_per_second * 8 / 1e9) : "none";
}

TimeEstimate utilisation_of(const Outer& outer, const Network& network, const StepTime& step, const Seeded& s,
                            std::mt19937_64& random) {
  constexpr double kMostNumbers = 2e7;  // random numbers of one figure
  const double each = step.jitter > 0 ? 40 * outer.replicas : 1;
  const auto samples = static_cast<int64_t>(std::min(static_cast<double>(s.samples), kMostNumbers / each));
  if (samples < 2) return {};
  const TimeEstimate e = simulate_segment(outer, network, step, samples, random);
  const double compute = segment_compute(outer, step);
  return {compute / e.mean, compute / (e.mean * e.mean) * e.error, e.samples};
}

draw::Chart bandwidth_chart(const DilocoOptions& o) {
  const double least = o.bandwidth / 1000, most = o.bandwidth * 1000;
  draw::Chart chart(str_cat("Utilisation over bandwidth: ", number_text(o.parameters), " parameters, ",
                            number_text(o.replicas), " replicas, steps of ", seconds_text(o.step_seconds)),
                    {.label = "Gbit/s of each replica", .from = least * 8e-9, .to = most * 8e-9, .base = 10},
                    {.label = "utilisation", .from = 0, .to = 1}, {.legend = 240});
  for (const Method& m : methods(o)) {
    std::vector<draw::Point> line;
    for (int i = 0; i <= 120; ++i) {
      const double bandwidth = least * std::pow(most / least, i / 120.);
      line.push_back({bandwidth * 8e-9, utilisation(m.outer, {bandwidth, o.latency}, {.mean = o.step_seconds})});
    }
    chart.line(line, m.name);
  }
  chart.limit(std::vector<draw::Point>{{o.bandwidth * 8e-9, 0}, {o.bandwidth * 8e-9, 1}},
              str_cat("--bandwidth_gbit ", number_text(o.bandwidth * 8e-9)));
  chart.remark(str_cat("latency ", seconds_text(o.latency), ", no jitter"));
  return chart;
}

}  // namespace

StudyReport diloco_study(const DilocoOptions& o, const Seeded& s) {
  std::mt19937_64 random(s.seed);
  const Network network{.bandwidth = o.bandwidth, .latency = o.latency};
  const StepTime step{.mean = o.step_seconds, .jitter = o.jitter};
  std::vector<std::vector<std::string>> rows{{"", "bytes a step", "bytes at once", "utilisation", "simulated",
                                              str_cat(number_text(o.steps), " steps"),
                                              str_cat("Gbit/s for ", percent(kUtilisation))}};
  io::OrderedJson json{{"parameters", o.parameters}, {"replicas", o.replicas}, {"bandwidth", o.bandwidth}};
  bool all_closed = true;
  for (const Method& m : methods(o)) {
    const bool closed = has_closed_form(m.outer, step);
    all_closed &= closed;
    const TimeEstimate simulated = utilisation_of(m.outer, network, step, s, random);
    const bool known = closed || simulated.samples > 0;
    const double share = closed ? utilisation(m.outer, network, step) : simulated.mean,
                 need = bandwidth_for(kUtilisation, m.outer, o.latency, o.step_seconds),
                 seconds = o.steps * o.step_seconds / share;
    rows.push_back({m.name, bytes_text(bytes_a_step(m.outer)), bytes_text(burst_bytes(m.outer)),
                    closed ? percent(share) : "-",
                    simulated.samples > 0 ? str_cat(percent(simulated.mean), " +- ", percent(simulated.error)) : "-",
                    known ? time_text(seconds) : "-", gbit_text(need)});
    io::OrderedJson row{{"name", m.name},
                        {"bytes_a_step", bytes_a_step(m.outer)},
                        {"burst", burst_bytes(m.outer)},
                        {"utilisation", closed ? io::OrderedJson(share) : io::OrderedJson()},
                        {"seconds", known ? io::OrderedJson(seconds) : io::OrderedJson()},
                        {"bandwidth_for_90_percent", need}};
    if (simulated.samples > 0) row["simulated"] = {{"mean", simulated.mean}, {"standard_error", simulated.error}};
    json["methods"].push_back(row);
  }
  StudyReport report;
  report.text = str_cat(
      number_text(o.parameters), " parameters, ", number_text(o.replicas), " replicas, ", gbit_text(o.bandwidth),
      " Gbit/s and ", seconds_text(o.latency), " between them, steps of ", seconds_text(o.step_seconds),
      o.jitter > 0 ? str_cat(" +- ", seconds_text(o.jitter)) : std::string(), "\n\n", profiler::table_text(rows),
      "\nbytes: sent by a replica, 2 (R - 1) / R of the parameters by exchange. utilisation: the share of its time\n"
      "that a replica computes, in closed form. +-: one standard error. Gbit/s: for that utilisation without jitter;\n"
      "none: latency alone costs more.\n",
      all_closed ? "" : "There is no closed form for overlap and jitter together.\n",
      "Gradients of data parallelism are sent after the step's compute; of the rows, streaming alone hides exchanges.\n"
      "DiLoCo trains differently from data parallelism: fewer bytes do not predict the loss.\n");
  report.json = io::write_json(json, 2);
  report.charts = {bandwidth_chart(o)};
  return report;
}

}  // namespace weft::study
