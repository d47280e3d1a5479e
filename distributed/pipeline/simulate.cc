#include "distributed/pipeline/simulate.h"

#include <algorithm>
#include <cmath>

#include "distributed/pipeline/check.h"
#include "framework/base/error.h"

namespace weft::dist::pipeline {
namespace {

template <class Numbers>
void check_numbers(const Numbers& numbers, const char* what, const char* of, size_t place) {
  for (double n : numbers)
    WEFT_CHECK(std::isfinite(n) && n >= 0, "pipeline simulation: got ", n, " as ", what, " of ", of, " ", place,
               "; need a finite number of 0 or more");
}

void check_costs(const ActionCosts& c, const StageLinks& links) {
  const size_t stages = static_cast<size_t>(links.stages());
  WEFT_CHECK(c.times.size() == stages, "pipeline simulation: got times of ", c.times.size(), " stages; need ", stages);
  WEFT_CHECK(c.wire.empty() || c.wire.size() == links.all().size(), "pipeline simulation: got times of ", c.wire.size(),
             " links; need ", links.size(), " or none");
  WEFT_CHECK(c.activation.empty() || c.activation.size() == stages, "pipeline simulation: got activations of ",
             c.activation.size(), " stages; need ", stages, " or none");
  WEFT_CHECK(c.overlap >= 0 && c.overlap <= 1, "pipeline simulation: got an overlap of ", c.overlap,
             "; need one from 0 to 1");
  for (size_t s = 0; s < stages; ++s) check_numbers(c.times[s], "a time", "stage", s);
  for (size_t s = 0; s < c.activation.size(); ++s)
    check_numbers(std::array{c.activation[s]}, "the activation", "stage", s);
  for (size_t k = 0; k < c.wire.size(); ++k) check_numbers(std::array{c.wire[k]}, "the time", "link", k);
}

/// The summary of one rank; `spans` belong to its actions.
Simulation::RankUse summarize(const std::vector<Action>& list, const std::vector<Simulation::BusySpan>& spans,
                              const ActionCosts& costs, double makespan) {
  Simulation::RankUse rank;
  double alive = 0, free_at = 0, outside = 0;  // outside: idle before the first action that takes time
  for (size_t i = 0; i < list.size(); ++i) {
    const Simulation::BusySpan& span = spans[i];
    const bool counted = i > 0 && list[i - 1].with_next;  // a pair has one span
    if (span.end > span.begin && !counted) {
      (rank.busy > 0 ? rank.idle_inside : outside) += span.begin - free_at;
      rank.busy += span.end - span.begin;
      free_at = span.end;
    }
    const double size = costs.activation.empty() ? 1 : costs.activation[list[i].stage];
    if (list[i].kind == ActionKind::kForward) rank.activation = std::max(rank.activation, alive += size);
    if (list[i].kind == ActionKind::kWeight || list[i].kind == ActionKind::kBackward) alive -= size;
  }
  rank.idle = outside + rank.idle_inside + (makespan - free_at);
  return rank;
}

}  // namespace

ActionCosts ActionCosts::equal(int stages, double forward, double input, double weight) {
  ActionCosts costs;
  costs.times.assign(static_cast<size_t>(stages), {forward, input, weight, input + weight});
  return costs;
}

double Simulation::idle() const {
  double worst = 0;
  for (const RankUse& r : ranks) worst = std::max(worst, r.idle);
  return worst;
}

double Simulation::idle_inside() const {
  double worst = 0;
  for (const RankUse& r : ranks) worst = std::max(worst, r.idle_inside);
  return worst;
}

Simulation simulate(const Table& table, const StageLinks& links, const ActionCosts& costs) {
  const Checked checked = check(table, links);
  check_costs(costs, links);
  const ActionIndex& index = checked.index;
  std::vector<double> end(static_cast<size_t>(index.size()));
  std::vector<double> free_at(table.ranks.size(), 0);
  Simulation result;
  for (const std::vector<Action>& rank : table.ranks) result.spans.emplace_back(rank.size());
  // In the order of check(), awaited actions get their times before the actions that await them.
  for (size_t i = 0; i < checked.order.size();) {
    const int number = checked.order[i];
    const size_t rank = static_cast<size_t>(index.rank_of(number));
    const size_t position = static_cast<size_t>(number - index.first(static_cast<int>(rank)));
    const Action* a = &table.ranks[rank][position];
    const size_t count = a->with_next ? 2 : 1;
    double begin = free_at[rank], time = 0, shorter = 0;
    for (size_t k = 0; k < count; ++k) {
      index.for_each_awaited(a[k], [&](int awaited, int link) {
        const double wire = link < 0 || costs.wire.empty() ? 0 : costs.wire[link];
        begin = std::max(begin, end[awaited] + wire);
      });
      const double alone = costs.time(a[k].stage, a[k].kind);
      shorter = k == 0 ? alone : std::min(shorter, alone);
      time += alone;
    }
    if (count == 2) time -= costs.overlap * shorter;
    free_at[rank] = begin + time;
    for (size_t k = 0; k < count; ++k, ++i) {
      end[static_cast<size_t>(number) + k] = begin + time;
      result.spans[rank][position + k] = {begin, begin + time};
    }
  }
  for (double t : free_at) result.makespan = std::max(result.makespan, t);
  for (size_t r = 0; r < table.ranks.size(); ++r) {
    result.ranks.push_back(summarize(table.ranks[r], result.spans[r], costs, result.makespan));
    result.ranks.back().alive = checked.alive[r];
  }
  return result;
}

}  // namespace weft::dist::pipeline
