#include "distributed/pipeline/communication.h"

#include <algorithm>
#include <vector>

#include "distributed/pipeline/check.h"
#include "framework/base/error.h"

namespace weft::dist::pipeline {

Table add_communication(const Table& table, const StageLinks& links, const ActionCosts& costs) {
  const Checked checked = check(table, links);
  const ActionIndex& index = checked.index;
  WEFT_CHECK(!index.has_transfers(), "pipeline table: got a table with SEND and RECV; need one without");
  const Simulation simulation = simulate(table, links, costs);
  std::vector<double> end;  // index: number of an action
  for (const std::vector<Simulation::BusySpan>& rank : simulation.spans)
    for (const Simulation::BusySpan& span : rank) end.push_back(span.end);
  // Ordered by end times; at equal times, an awaited action comes before the action that awaits it.
  std::vector<int> order = checked.order;
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return end[a] < end[b]; });

  Table result = table;
  for (std::vector<Action>& rank : result.ranks) rank.clear();
  auto transfer = [&](const Action& a, int from, int to) {
    auto add = [&](ActionKind kind, int stage, int peer) {
      result.ranks[index.rank_of_stage(stage)].push_back(
          {.kind = kind, .stage = stage, .microbatch = a.microbatch, .peer = peer});
    };
    add(ActionKind::kSend, from, to);
    add(ActionKind::kRecv, to, from);
  };
  auto send_results = [&](const Action& a) {
    if (a.kind == ActionKind::kForward) {
      for (int link = links.first_output(a.stage); link < links.first_output(a.stage + 1); ++link)
        if (index.crosses(link)) transfer(a, a.stage, links[link].to);
    } else if (a.kind == ActionKind::kInput || a.kind == ActionKind::kBackward) {
      for (int link : links.inputs(a.stage))
        if (index.crosses(link)) transfer(a, a.stage, links[link].from);
    }
  };
  const Action* first_of_pair = nullptr;  // its results are sent after the second action
  for (int number : order) {
    const Action& a = index.action(number);
    result.ranks[index.rank_of(number)].push_back(a);
    if (a.with_next) {
      first_of_pair = &a;
      continue;
    }
    if (first_of_pair) send_results(*first_of_pair);
    first_of_pair = nullptr;
    send_results(a);
  }
  return result;
}

}  // namespace weft::dist::pipeline
