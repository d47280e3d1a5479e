// For tests: a second, slow implementation of check() and simulate(), straight from the rules.
#pragma once
#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "distributed/pipeline/simulate.h"
#include "distributed/pipeline/table.h"
#include "framework/base/str_cat.h"

namespace weft::dist::pipeline::testing {

/// A schedule and its size, with names for failures.
struct Case {
  std::string name;
  int ranks, microbatches;
  std::string to_string() const { return str_cat(name, " p=", ranks, " m=", microbatches); }
};

/// The RECV of a SEND, or the SEND of a RECV.
inline Action other_end(const Action& a) {
  return {a.kind == ActionKind::kSend ? ActionKind::kRecv : ActionKind::kSend, false, a.peer, a.microbatch, a.stage};
}

class Reference {
 public:
  Reference(const Table& table, const StageLinks& links) : table_(table), links_(links) {
    for (const std::vector<Action>& rank : table.ranks)
      for (const Action& a : rank) {
        ++count_[key(a)];
        has_transfers_ |= transfers(a.kind);
      }
  }

  /// Whether each action exists once, on its rank, and all ranks can run to the end. For tables without GATHER, RELEASE
  /// and REDUCE.
  bool valid() {
    for (size_t r = 0; r < table_.ranks.size(); ++r)
      for (size_t i = 0; i < table_.ranks[r].size(); ++i) {
        const Action& a = table_.ranks[r][i];
        if (table_.rank_of_stage[size(a.stage)] != static_cast<int>(r) || count_[key(a)] != 1) return false;
        if (transfers(a.kind)) {
          const int link = links_.find(std::min(a.stage, a.peer), std::max(a.stage, a.peer));
          if (link < 0 || !crosses(a.stage, a.peer)) return false;
        }
        if (a.with_next && (i + 1 == table_.ranks[r].size() || !computes(a.kind) ||
                            !computes(table_.ranks[r][i + 1].kind) || table_.ranks[r][i + 1].with_next))
          return false;
      }
    for (int s = 0; s < table_.stages(); ++s)
      for (int m = 0; m < table_.microbatches; ++m) {
        if (!has(ActionKind::kForward, s, m)) return false;
        if (has(ActionKind::kBackward, s, m) == has(ActionKind::kInput, s, m)) return false;
        if (has(ActionKind::kInput, s, m) != has(ActionKind::kWeight, s, m)) return false;
      }
    if (has_transfers_)
      for (size_t k = 0; k < links_.all().size(); ++k)
        for (int m = 0; m < table_.microbatches; ++m) {
          const auto [from, to] = links_.all()[k];
          if (!crosses(from, to)) continue;
          for (ActionKind kind : {ActionKind::kSend, ActionKind::kRecv})
            if (!has(kind, from, m, to) || !has(kind, to, m, from)) return false;
        }
    return same_transfer_order() && run();
  }

  /// Runs all actions that can run, without times. Returns whether every action ran. `blocking`: a transfer needs both
  /// its ranks at once.
  bool run(bool blocking = false) {
    done_.clear();
    at.assign(table_.ranks.size(), 0);
    for (bool progress = true; progress;) {
      progress = false;
      for (size_t r = 0; r < table_.ranks.size(); ++r) {
        const Action* a = head(r);
        if (!a || missing(*a) || (a->with_next && missing(a[1]))) continue;
        if (blocking && transfers(a->kind)) {
          const size_t other = size(table_.rank_of_stage[size(a->peer)]);
          const Action* b = head(other);
          if (!b || key(*b) != key(other_end(*a)) || missing(*b)) continue;
          done_.insert(key(*b));
          ++at[other];
        }
        progress = true;
        for (int i = a->with_next ? 2 : 1; i > 0; --i) done_.insert(key(table_.ranks[r][at[r]++]));
      }
    }
    for (size_t r = 0; r < table_.ranks.size(); ++r)
      if (head(r)) return false;
    return true;
  }

  /// After run(): the action at which a rank waits; null if the rank has ended.
  const Action* head(size_t rank) const {
    return at[rank] < table_.ranks[rank].size() ? &table_.ranks[rank][at[rank]] : nullptr;
  }
  std::vector<Action> missing_of(const Action& a) const {
    std::vector<Action> found;
    for (const auto& [b, link] : awaited(a))
      if (!done_.count(key(b))) found.push_back(b);
    return found;
  }

  /// The length of the longest path through the actions: relaxes all edges until nothing changes. For tables without
  /// pairs.
  double longest_path(const ActionCosts& costs) const {
    std::map<Key, double> begin;
    auto end = [&](const Action& a) { return begin[key(a)] + costs.time(a.stage, a.kind); };
    double longest = 0;
    for (bool changed = true; changed;) {
      changed = false;
      for (const std::vector<Action>& rank : table_.ranks)
        for (size_t i = rank.size();
             i-- > 0;) {  // in reverse order, so that one pass relaxes few edges in the right order
          double t = i ? end(rank[i - 1]) : 0;
          for (const auto& [b, link] : awaited(rank[i]))
            t = std::max(t, end(b) + (link < 0 || costs.wire.empty() ? 0 : costs.wire[size(link)]));
          changed |= t > begin[key(rank[i])];
          begin[key(rank[i])] = t;
          longest = std::max(longest, end(rank[i]));
        }
    }
    return longest;
  }

  std::vector<size_t> at;  // rank -> number of actions that have run

 private:
  using Key = std::tuple<ActionKind, int, int, int>;
  static size_t size(int n) { return static_cast<size_t>(n); }
  static Key key(const Action& a) { return {a.kind, a.stage, a.microbatch, a.peer}; }
  bool has(ActionKind kind, int stage, int microbatch, int peer = -1) const {
    return count_.count(Key{kind, stage, microbatch, peer}) > 0;
  }
  bool crosses(int a, int b) const { return table_.rank_of_stage[size(a)] != table_.rank_of_stage[size(b)]; }
  bool missing(const Action& a) const { return !missing_of(a).empty(); }

  Action gradient(int stage, int m) const {
    return {.kind = has(ActionKind::kInput, stage, m) ? ActionKind::kInput : ActionKind::kBackward,
            .stage = stage,
            .microbatch = m};
  }
  Action forward(int stage, int m) const { return {.stage = stage, .microbatch = m}; }

  /// The actions that an action awaits, each with the link that its value crosses, or -1.
  std::vector<std::pair<Action, int>> awaited(const Action& a) const {
    std::vector<std::pair<Action, int>> list;
    const int m = a.microbatch;
    for (int k = 0; k < links_.size(); ++k) {
      const auto [from, to] = links_[k];
      const bool into = a.kind == ActionKind::kForward && to == a.stage;
      const bool back = (a.kind == ActionKind::kInput || a.kind == ActionKind::kBackward) && from == a.stage;
      if (!into && !back) continue;
      const int other = into ? from : to;
      if (!crosses(from, to)) {
        list.push_back({into ? forward(other, m) : gradient(other, m), -1});
      } else if (has_transfers_) {
        list.push_back({{ActionKind::kSend, false, other, m, a.stage}, k});
        list.push_back({{ActionKind::kRecv, false, a.stage, m, other}, k});
      } else {
        list.push_back({into ? forward(other, m) : gradient(other, m), k});
      }
    }
    if (a.kind == ActionKind::kInput || a.kind == ActionKind::kBackward) list.push_back({forward(a.stage, m), -1});
    if (a.kind == ActionKind::kWeight) list.push_back({gradient(a.stage, m), -1});
    if (a.kind == ActionKind::kSend)
      list.push_back({a.stage < a.peer ? forward(a.stage, m) : gradient(a.stage, m), -1});
    return list;
  }

  bool same_transfer_order() const {
    auto between = [&](size_t r, size_t other, bool flip) {
      std::vector<Key> keys;
      for (const Action& a : table_.ranks[r])
        if (transfers(a.kind) && table_.rank_of_stage[size(a.peer)] == static_cast<int>(other))
          keys.push_back(key(flip ? other_end(a) : a));
      return keys;
    };
    for (size_t r = 0; r < table_.ranks.size(); ++r)
      for (size_t other = 0; other < r; ++other)
        if (between(r, other, false) != between(other, r, true)) return false;
    return true;
  }

  const Table& table_;
  const StageLinks& links_;
  std::map<Key, int> count_;
  std::set<Key> done_;
  bool has_transfers_ = false;
};

}  // namespace weft::dist::pipeline::testing
