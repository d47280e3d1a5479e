#include "distributed/pipeline/index.h"

#include <map>

#include "framework/base/error.h"

namespace weft::dist::pipeline {
namespace {

constexpr const char* kWho = "pipeline table: rank ";

/// The least number >= 0 that is not in the list.
int first_gap(std::vector<int> numbers) {
  std::sort(numbers.begin(), numbers.end());
  int gap = 0;
  for (int n : numbers)
    if (n == gap) ++gap;
  return gap;
}

}  // namespace

ActionIndex::ActionIndex(const Table& table, const StageLinks& links) : table_(table), links_(links) {
  check_table();
  for (int r = 0; r < static_cast<int>(table.ranks.size()); ++r)
    for (size_t i = 0; i < table.ranks[r].size(); ++i) check_action(r, i);
  check_enough();
  fill();
  check_complete();
  if (has_transfers()) check_transfer_order();
}

int ActionIndex::rank_of(int number) const {
  return static_cast<int>(std::upper_bound(first_.begin(), first_.end(), number) - first_.begin()) - 1;
}

const Action& ActionIndex::action(int number) const {
  const int rank = rank_of(number);
  return table_.ranks[rank][number - first(rank)];
}

void ActionIndex::check_table() const {
  const int stages = table_.stages();
  WEFT_CHECK(!table_.ranks.empty() && stages >= 1 && table_.microbatches >= 1, "pipeline table: got ",
             table_.ranks.size(), " ranks, ", stages, " stages and ", table_.microbatches,
             " microbatches; need 1 or more of each");
  WEFT_CHECK(links_.stages() == stages, "pipeline table: got ", stages, " stages; need ", links_.stages(),
             ", as the links have");
  for (int s = 0; s < stages; ++s)
    WEFT_CHECK(rank_of_stage(s) >= 0 && static_cast<size_t>(rank_of_stage(s)) < table_.ranks.size(),
               "pipeline table: stage ", s, " is on rank ", rank_of_stage(s), "; need one of ", table_.ranks.size(),
               " ranks");
  size_t actions = 0;
  for (const std::vector<Action>& rank : table_.ranks) actions += rank.size();
  WEFT_CHECK(actions <= kMostActions, "pipeline table: got ", actions, " actions; need at most ", kMostActions);
}

void ActionIndex::check_action(int rank, size_t position) const {
  const std::vector<Action>& list = table_.ranks[rank];
  const Action& a = list[position];
  WEFT_CHECK(a.stage >= 0 && a.stage < table_.stages(), kWho, rank, " has ", a, "; need a stage from 0 to ",
             table_.stages() - 1);
  WEFT_CHECK(rank_of_stage(a.stage) == rank, kWho, rank, " has ", a, "; need it on rank ", rank_of_stage(a.stage),
             ", where stage ", a.stage, " is");
  if (computes(a.kind) || transfers(a.kind))
    WEFT_CHECK(a.microbatch >= 0 && a.microbatch < table_.microbatches, kWho, rank, " has ", a,
               "; need a microbatch from 0 to ", table_.microbatches - 1);
  if (transfers(a.kind)) check_peer(rank, a);
  if (!a.with_next) return;
  const bool pair = computes(a.kind) && position + 1 < list.size() && computes(list[position + 1].kind) &&
                    !list[position + 1].with_next;
  WEFT_CHECK(pair, kWho, rank, " joins ", a, " with ",
             position + 1 < list.size() ? list[position + 1].to_string() : "nothing",
             "; need one other F, I, W or B, which is not joined with its next action");
}

void ActionIndex::check_peer(int rank, const Action& a) const {
  const int link = links_.find(std::min(a.stage, a.peer), std::max(a.stage, a.peer));
  WEFT_CHECK(link >= 0, kWho, rank, " has ", a, ", but these stages exchange nothing; need two stages with a link");
  WEFT_CHECK(crosses(link), kWho, rank, " has ", a, ", but both stages are on this rank; need no transfer");
}

/// After this check, every array by stage or link and microbatch is no larger than the table of actions.
void ActionIndex::check_enough() const {
  const int m = table_.microbatches;
  std::vector<std::vector<int>> forwards(static_cast<size_t>(table_.stages()));
  std::vector<std::vector<int>> transferred(4 * static_cast<size_t>(links_.size()));
  bool any = false;
  auto list_of = [&](int link, bool back, ActionKind kind) -> std::vector<int>& {
    return transferred[4 * static_cast<size_t>(link) + 2 * back + (kind == ActionKind::kRecv)];
  };
  for (const std::vector<Action>& rank : table_.ranks)
    for (const Action& a : rank) {
      if (a.kind == ActionKind::kForward) forwards[a.stage].push_back(a.microbatch);
      if (!transfers(a.kind)) continue;
      any = true;
      const bool up = a.stage < a.peer;
      const int link = up ? links_.find(a.stage, a.peer) : links_.find(a.peer, a.stage);
      list_of(link, up != (a.kind == ActionKind::kSend), a.kind).push_back(a.microbatch);
    }
  auto need_all = [&](const std::vector<int>& have, Action missing) {
    if (have.size() >= static_cast<size_t>(m)) return;
    missing.microbatch = first_gap(have);
    WEFT_CHECK(false, kWho, rank_of_stage(missing.stage), " lacks ", missing, "; need it for each of ", m,
               " microbatches");
  };
  for (int s = 0; s < table_.stages(); ++s) need_all(forwards[s], {.kind = ActionKind::kForward, .stage = s});
  if (!any) return;
  for (int link = 0; link < links_.size(); ++link) {
    if (!crosses(link)) continue;
    for (bool back : {false, true}) {
      const int from = back ? links_[link].to : links_[link].from;
      const int to = back ? links_[link].from : links_[link].to;
      need_all(list_of(link, back, ActionKind::kSend), {.kind = ActionKind::kSend, .stage = from, .peer = to});
      need_all(list_of(link, back, ActionKind::kRecv), {.kind = ActionKind::kRecv, .stage = to, .peer = from});
    }
  }
}

void ActionIndex::put(int& place, int number) const {
  if (place >= 0) {
    const Action &before = action(place), &a = action(number);
    const int rank = rank_of(number);
    WEFT_CHECK(before.kind == a.kind, kWho, rank, " has ", a, " and also ", before,
               "; need B alone, or I and W without B");
    WEFT_CHECK(false, kWho, rank, " has ", a, " twice, as its actions ", place - first(rank), " and ",
               number - first(rank), " from 0 on; need it once");
  }
  place = number;
}

void ActionIndex::fill() {
  for (const std::vector<Action>& rank : table_.ranks)
    first_.push_back((first_.empty() ? 0 : first_.back()) + static_cast<int>(rank.size()));
  first_.insert(first_.begin(), 0);
  const size_t slots = slot(table_.stages(), 0);
  for (std::vector<int>* v : {&forward_, &gradient_, &weight_}) v->assign(slots, -1);
  int number = 0;
  for (const std::vector<Action>& rank : table_.ranks)
    for (const Action& a : rank) {
      const int n = number++;
      if (transfers(a.kind)) {
        if (sends_.empty()) {
          sends_.assign(slot(2 * links_.size(), 0), -1);
          recvs_ = sends_;
        }
        const bool send = a.kind == ActionKind::kSend;
        const bool up = a.stage < a.peer;
        const int link = up ? links_.find(a.stage, a.peer) : links_.find(a.peer, a.stage);
        put((send ? sends_ : recvs_)[transfer(link, up != send, a.microbatch)], n);
      }
      if (!computes(a.kind)) continue;
      const size_t at = slot(a.stage, a.microbatch);
      if (a.kind == ActionKind::kForward) put(forward_[at], n);
      if (a.kind == ActionKind::kInput || a.kind == ActionKind::kBackward) put(gradient_[at], n);
      if (a.kind == ActionKind::kWeight || a.kind == ActionKind::kBackward) put(weight_[at], n);
    }
}

/// A stage has M forwards, and none is doubled, so no forward is missing. The same holds for transfers.
void ActionIndex::check_complete() const {
  for (int s = 0; s < table_.stages(); ++s)
    for (int m = 0; m < table_.microbatches; ++m) {
      const bool input = gradient(s, m) >= 0, weights = weight(s, m) >= 0;
      if (input && weights) continue;
      const ActionKind kind = input ? ActionKind::kWeight : weights ? ActionKind::kInput : ActionKind::kBackward;
      WEFT_CHECK(false, kWho, rank_of_stage(s), " lacks ", Action{.kind = kind, .stage = s, .microbatch = m},
                 input || weights ? "" : ", and I and W", "; need each gradient once");
    }
}

/// Two ranks that begin their transfers in one order can use any channel between them.
void ActionIndex::check_transfer_order() const {
  struct Transfers {
    std::vector<int> numbers;  // numbers of the transfers on the lower rank, in its order
    size_t next = 0;           // index of the next transfer on the higher rank
  };
  std::map<std::pair<int, int>, Transfers> between;
  int number = 0;
  for (int r = 0; r < static_cast<int>(table_.ranks.size()); ++r)
    for (const Action& a : table_.ranks[r]) {
      const int n = number++;
      if (!transfers(a.kind)) continue;
      const int other = rank_of_stage(a.peer);
      Transfers& t = between[{std::min(r, other), std::max(r, other)}];
      if (r < other) {
        t.numbers.push_back(n);
        continue;
      }
      const Action& first = action(t.numbers[t.next++]);
      const bool same =
          first.kind != a.kind && first.stage == a.peer && first.peer == a.stage && first.microbatch == a.microbatch;
      WEFT_CHECK(same, kWho, r, " has ", a, " where rank ", other, " has ", first,
                 "; need the transfers between two ranks in the same order on both");
    }
}

}  // namespace weft::dist::pipeline
