#include "distributed/pipeline/check.h"

#include <algorithm>
#include <utility>

#include "framework/base/error.h"

namespace weft::dist::pipeline {
namespace {

constexpr const char* kWho = "pipeline table: rank ";

void check_order_of_rank(const ActionIndex& index, int rank) {
  const std::vector<Action>& list = index.table().ranks[rank];
  const int first = index.first(rank), end = index.first(rank + 1);
  int begin = first;  // position of the action, or of the first action of its pair
  for (int n = first; n < end; ++n) {
    const Action& a = list[n - first];
    if (n == first || !list[n - first - 1].with_next) begin = n;
    index.for_each_awaited(a, [&](int awaited, int) {
      if (awaited < begin || awaited >= end) return;
      WEFT_CHECK(awaited >= n, kWho, rank, " joins ", a, " with ", index.action(awaited),
                 ", which it awaits; need two actions of which neither awaits the other");
      WEFT_CHECK(awaited < begin, kWho, rank, " has ", a, " before ", index.action(awaited),
                 ", which it awaits; need them in the other order");
    });
  }
}

/// In stages with a GATHER, weights exist from GATHER to RELEASE. REDUCE reduces the gradients accumulated before it.
void check_stage_actions(const Table& table) {
  struct StageState {
    bool gathers = false, gathered = false, reduces = false;
    const Action* gradient = nullptr;  // the last gradient that no REDUCE has reduced
  };
  std::vector<StageState> stages(static_cast<size_t>(table.stages()));
  for (const std::vector<Action>& rank : table.ranks)
    for (const Action& a : rank) {
      StageState& s = stages[a.stage];
      s.gathers |= a.kind == ActionKind::kGather || a.kind == ActionKind::kRelease;
      s.reduces |= a.kind == ActionKind::kReduce;
    }
  for (size_t r = 0; r < table.ranks.size(); ++r)
    for (const Action& a : table.ranks[r]) {
      StageState& s = stages[a.stage];
      if (a.kind == ActionKind::kGather) {
        WEFT_CHECK(!s.gathered, kWho, r, " has ", a, ", whose weights are gathered already; need a RELEASE between");
        s.gathered = true;
      } else if (a.kind == ActionKind::kRelease) {
        WEFT_CHECK(s.gathered, kWho, r, " has ", a, ", whose weights are not gathered; need a GATHER before");
        s.gathered = false;
      } else if (a.kind == ActionKind::kReduce) {
        WEFT_CHECK(s.gradient, kWho, r, " has ", a, " without new gradients; need a W or B of the stage before it");
        s.gradient = nullptr;
      } else if (computes(a.kind)) {
        WEFT_CHECK(a.kind == ActionKind::kWeight || s.gathered || !s.gathers, kWho, r, " has ", a,
                   " while the weights are not gathered; need a GATHER of the stage before");
        if (a.kind == ActionKind::kWeight || a.kind == ActionKind::kBackward) s.gradient = &a;
      }
    }
  for (size_t s = 0; s < stages.size(); ++s)
    WEFT_CHECK(!stages[s].reduces || !stages[s].gradient, kWho, table.rank_of_stage[s], " has ", *stages[s].gradient,
               " after the last REDUCE of the stage; need a REDUCE after it");
}

int most_alive(const std::vector<Action>& list) {
  int alive = 0, most = 0;
  for (const Action& a : list) {
    if (a.kind == ActionKind::kForward) most = std::max(most, ++alive);
    if (a.kind == ActionKind::kWeight || a.kind == ActionKind::kBackward) --alive;
  }
  return most;
}

/// Runs the table without times: a rank runs until an action awaits another rank, which wakes it.
class TableRun {
 public:
  explicit TableRun(const ActionIndex& index) : index_(index) {
    const size_t ranks = index.table().ranks.size();
    for (size_t r = 0; r < ranks; ++r) next_.push_back(index.first(static_cast<int>(r)));
    awaited_.assign(ranks, -1);
    next_sleeper_.assign(ranks, -1);
    sleeper_.assign(static_cast<size_t>(index.size()), -1);
    order_.reserve(static_cast<size_t>(index.size()));
  }

  std::vector<int> order() && {
    for (int r = 0; r < ranks(); ++r) awake_.push_back(r);
    while (!awake_.empty()) {
      const int rank = awake_.back();
      awake_.pop_back();
      advance(rank);
    }
    if (order_.size() < static_cast<size_t>(index_.size())) report();
    return std::move(order_);
  }

 private:
  int ranks() const { return static_cast<int>(next_.size()); }
  int& next(int rank) { return next_[rank]; }
  bool done(int number) const {
    const int rank = index_.rank_of(number);
    return number < next_[rank];
  }
  const Action& head(int rank) const { return index_.table().ranks[rank][next_[rank] - index_.first(rank)]; }

  void advance(int rank) {
    while (next(rank) < index_.first(rank + 1)) {
      const Action* a = &head(rank);
      const int count = a->with_next ? 2 : 1;
      int awaited = -1;
      for (int i = 0; i < count; ++i)
        index_.for_each_awaited(a[i], [&](int n, int) {
          if (awaited < 0 && !done(n)) awaited = n;
        });
      if (awaited >= 0) {
        awaited_[rank] = awaited;
        next_sleeper_[rank] = sleeper_[awaited];
        sleeper_[awaited] = rank;
        return;
      }
      for (int i = 0; i < count; ++i) {
        const int n = next(rank)++;
        order_.push_back(n);
        for (int r = sleeper_[n]; r >= 0; r = next_sleeper_[r]) awake_.push_back(r);
      }
    }
  }

  /// Every waiting rank awaits another waiting rank, so the path from any rank leads into a cycle. Names the wait of
  /// the cycle's lowest rank.
  [[noreturn]] void report() {
    int rank = 0;
    while (next(rank) == index_.first(rank + 1)) ++rank;
    std::vector<char> seen(next_.size(), 0);
    auto follow = [&] { rank = index_.rank_of(awaited_[rank]); };
    for (; !seen[rank]; follow()) seen[rank] = 1;
    int lowest = rank, length = 0;
    const int start = rank;
    do {
      lowest = std::min(lowest, rank);
      ++length;
      follow();
    } while (rank != start);
    rank = lowest;
    const int awaited = awaited_[rank];
    // If the head is a pair, the action that awaits.
    const Action* a = &head(rank);
    bool first = false;
    index_.for_each_awaited(*a, [&](int n, int) { first |= n == awaited; });
    const int other = index_.rank_of(awaited);
    internal::fail(Code::kInvalidArgument,
                   str_cat("pipeline table: deadlock of ", length, " ranks: rank ", rank, " waits at ",
                           first ? *a : a[1], " for ", index_.action(awaited), " on rank ", other, ", which waits at ",
                           head(other), "; need an order in which ", index_.action(awaited), " can come first"));
  }

  const ActionIndex& index_;
  std::vector<int> next_;          // rank -> its first action that has not run
  std::vector<int> awaited_;       // sleeping rank -> the awaited action
  std::vector<int> next_sleeper_;  // rank -> another rank that awaits the same action
  std::vector<int> sleeper_;       // action -> a rank that awaits it
  std::vector<int> awake_;
  std::vector<int> order_;
};

}  // namespace

Checked check(const Table& table, const StageLinks& links) {
  Checked checked{ActionIndex(table, links), {}, {}};
  for (int r = 0; r < static_cast<int>(table.ranks.size()); ++r) {
    check_order_of_rank(checked.index, r);
    checked.alive.push_back(most_alive(table.ranks[r]));
  }
  check_stage_actions(table);
  checked.order = TableRun(checked.index).order();
  return checked;
}

}  // namespace weft::dist::pipeline
