#include "distributed/control/group/simulation/schedule.h"

#include <algorithm>

namespace weft::control {
namespace {

std::mt19937_64 random_of(uint64_t seed) { return std::mt19937_64(seed * 0x9e3779b97f4a7c15u); }

}  // namespace

GroupSchedule schedule_of(uint64_t seed) {
  using Kind = GroupFault::Kind;
  GroupSchedule s{.random = random_of(seed)};
  const auto below = [&](int64_t n) { return static_cast<int64_t>(s.random() % static_cast<uint64_t>(n)); };
  const int64_t size = below(3) == 0 ? 1 + below(4) : 8;
  s.steps = 10 + below(190);
  const int64_t most = size > 1 && below(4) == 0 ? size - 1 : size;
  s.config = {.job = "sim", .replicas = most, .replicas_min = 1 + below(2) * below(most)};
  const bool calm = below(8) == 0;
  const auto some = [&](int64_t n) { return calm || below(2) ? 0 : 1 + below(n); };
  s.loss = static_cast<double>(some(1)) * 0.15;
  s.twice = 0.1;
  s.late = 0.05;
  const std::pair<Kind, int64_t> faults[] = {{Kind::kCrash, some(6)},   {Kind::kStop, some(2)},
                                             {Kind::kCut, some(4)},     {Kind::kBreak, some(4)},
                                             {Kind::kService, some(2)}, {Kind::kLeave, most > 2 ? some(1) : 0}};
  s.stopped_process_is_replaced = below(3) == 0;
  if (faults[4].second > 0) s.service_dies_with_view = 0.1;
  if (faults[5].second > 0) s.config.replicas_min = std::min(s.config.replicas_min, most - 1);
  const int64_t spread = below(2) ? 300 : 8000;  // storms of starts, and late replicas
  for (int64_t i = 0; i < size; ++i) s.starts.push_back(below(spread));
  for (const auto& [kind, count] : faults)
    for (int64_t i = 0; i < count; ++i) s.faults.push_back({kind, below(6000)});
  return s;
}

GroupSchedule schedule_of(const Drill& d, uint64_t seed) {
  const TimeRange one{1, 1};
  GroupSchedule s{.random = random_of(seed), .steps = kMostSteps, .limit = d.time, .cut_at_limit = true};
  s.config = {.job = "drill", .replicas = d.replicas};
  s.starts.assign(static_cast<size_t>(d.replicas), 0);
  const auto kind = d.fault == Drill::Fault::kStopped ? GroupFault::Kind::kStop : GroupFault::Kind::kCrash;
  for (int64_t from = 0; from < d.time; from += d.between)
    s.faults.push_back({kind, from + static_cast<int64_t>(s.random() % static_cast<uint64_t>(d.between))});
  s.reported = d.fault == Drill::Fault::kReported;
  s.lives_on = 0;
  s.message = s.collective = s.failure = s.closed = s.connect_again = s.death_report = one;
  s.compute = {d.step - 2};  // the sums and the ack are two collectives
  s.form = {d.form};
  s.heal = {d.heal};
  s.start_again = {d.again};
  s.stops = {s.config.silence_ms + d.again};
  return s;
}

}  // namespace weft::control
