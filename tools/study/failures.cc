#include "tools/study/failures.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <unordered_map>

namespace weft::study {
namespace {

constexpr double kDay = 86400;
constexpr int64_t kLeastSamples = 30;  // samples of an estimate with an error

double exponential(double mean, Random& random) {
  return mean * -std::log1p(-std::generate_canonical<double, 53>(random));
}

}  // namespace

double seconds_between_failures(double nodes, double failures_per_1000_node_days) {
  return kDay * 1000 / (failures_per_1000_node_days * nodes);
}

double young_interval(const Restart& r) { return std::sqrt(2 * r.checkpoint * r.between); }

double daly_interval(const Restart& r) {
  if (r.checkpoint >= 2 * r.between) return r.between;
  const double x = r.checkpoint / (2 * r.between);
  return young_interval(r) * (1 + std::sqrt(x) / 3 + x / 9) - r.checkpoint;
}

double restart_goodput_first_order(const Restart& r, double interval) {
  return 1 - (r.checkpoint / interval + (interval / 2 + r.restart) / r.between);
}

double interval_seconds(const Restart& r, double interval) {
  return r.between * std::exp(r.restart / r.between) * std::expm1((interval + r.checkpoint) / r.between);
}

double restart_goodput(const Restart& r, double interval) { return interval / interval_seconds(r, interval); }

double drop_goodput_first_order(const Drop& d) { return 1 - d.stall / d.between - d.rejoin / d.between / d.replicas; }

double drop_goodput(const Drop& d) { return std::exp(-(d.stall + d.rejoin / d.replicas) / d.between); }

double batch_share(double replicas) { return (replicas - 1) / replicas; }

TimeEstimate simulate_interval(const Restart& r, double interval, int64_t samples, double most_failures,
                               Random& random) {
  const double failures = interval_seconds(r, interval) / r.between;
  samples = static_cast<int64_t>(std::min(static_cast<double>(samples), most_failures / std::max(failures, 1e-9)));
  if (samples < kLeastSamples) return {};
  return estimate(samples, [&] {
    double time = 0, next;
    while ((next = exponential(r.between, random)) < interval + r.checkpoint) {
      time += next;
      while ((next = exponential(r.between, random)) < r.restart) time += next;
      time += r.restart;
    }
    return time + interval + r.checkpoint;
  });
}

std::vector<FailureEvent> sample_failures(double between, int64_t replicas, double from, double to, Random& random) {
  std::vector<FailureEvent> all;
  std::uniform_int_distribution<int64_t> replica(0, std::max<int64_t>(replicas, 1) - 1);
  for (double t = from + exponential(between, random); t < to; t += exponential(between, random))
    all.push_back({t, replica(random)});
  return all;
}

std::vector<RunPoint> drop_run(const Drop& d, const std::vector<FailureEvent>& failures, double end) {
  std::vector<RunPoint> points{{0, 0}};
  struct Return {
    double time;
    size_t failure;
  };
  std::deque<Return> returns;                // in the order of the failures, since all rejoins take equal times
  std::unordered_map<int64_t, size_t> away;  // replica -> its last failure
  double time = 0, work = 0, stalled_until = -1;
  const auto advance = [&](double to) {
    to = std::min(to, end);
    if (to <= time) return;
    const double go_on = std::clamp(stalled_until, time, to);
    if (go_on > time) points.push_back({go_on, work});
    work += (to - go_on) * (1 - static_cast<double>(away.size()) / d.replicas);
    if (to > go_on) points.push_back({to, work});
    time = to;
  };
  const auto return_until = [&](double t) {
    while (!returns.empty() && returns.front().time <= t) {
      const Return one = returns.front();
      returns.pop_front();
      const auto at = away.find(failures[one.failure].replica);
      if (at->second != one.failure) continue;  // it failed again
      advance(one.time);
      away.erase(at);
    }
  };
  for (size_t i = 0; i < failures.size() && failures[i].time < end; ++i) {
    return_until(failures[i].time);
    advance(failures[i].time);
    away[failures[i].replica] = i;
    stalled_until = failures[i].time + d.stall;
    returns.push_back({stalled_until + d.rejoin, i});
  }
  return_until(end);
  advance(end);
  return points;
}

TimeEstimate simulate_drop(const Drop& d, int64_t samples, double failures, double most_failures, Random& random) {
  const double end = failures * d.between, each = failures + (d.stall + d.rejoin) / d.between;
  samples = static_cast<int64_t>(std::min(static_cast<double>(samples), most_failures / each));
  if (samples < kLeastSamples) return {};
  return estimate(samples, [&] {
    // Failures begin before the start, so that replicas are away at the start as often as later.
    const auto all = sample_failures(d.between, static_cast<int64_t>(d.replicas), -(d.stall + d.rejoin), end, random);
    return drop_run(d, all, end).back().work / end;
  });
}

std::vector<RunPoint> restart_run(const Restart& r, double interval, const std::vector<FailureEvent>& failures,
                                  double end) {
  std::vector<RunPoint> points{{0, 0}};
  double time = 0, saved = 0;
  size_t i = 0;
  // Work and checkpoints in turn, until a failure.
  while (time < end) {
    const double failure = i < failures.size() ? std::min(failures[i].time, end) : end;
    double work = saved;
    for (bool checkpoint = false; time < failure; checkpoint = !checkpoint) {
      const double need = checkpoint ? r.checkpoint : interval, step = std::min(need, failure - time);
      time += step;
      if (!checkpoint) work += step;
      if (checkpoint && step == need) saved = work;
      points.push_back({time, work});
    }
    if (time >= end) break;
    points.push_back({time, saved});
    double up = time + r.restart;
    for (++i; i < failures.size() && failures[i].time < up; ++i) up = failures[i].time + r.restart;
    time = std::min(up, end);
    points.push_back({time, saved});
  }
  return points;
}

}  // namespace weft::study
