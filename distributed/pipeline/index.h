// The position of each action in a table. An action's number counts the actions of all ranks, rank after rank.
#pragma once
#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "distributed/pipeline/table.h"

namespace weft::dist::pipeline {

/// The index of a table that has each action exactly once, on the rank of its stage. Built in a time linear in the
/// number of actions.
class ActionIndex {
 public:
  /// Throws InvalidArgument on stages, microbatches and links that do not exist, and on actions that are missing,
  /// doubled or on a wrong rank. The message names the rank and the action. SEND and RECV are needed for all links
  /// between ranks or for none. Keeps references to both arguments.
  ActionIndex(const Table& table, const StageLinks& links);

  const Table& table() const { return table_; }
  /// The number of actions.
  int size() const { return first_.back(); }
  /// The number of the rank's first action.
  int first(int rank) const { return first_[rank]; }
  int rank_of(int number) const;
  const Action& action(int number) const;
  int rank_of_stage(int stage) const { return table_.rank_of_stage[stage]; }
  /// Whether the table has SEND and RECV.
  bool has_transfers() const { return !sends_.empty(); }
  /// Whether the two stages of a link are on different ranks.
  bool crosses(int link) const { return rank_of_stage(links_[link].from) != rank_of_stage(links_[link].to); }

  /// Action numbers for a stage and microbatch: F; the gradient of the inputs, I or B; the gradient of the weights, W
  /// or B.
  int forward(int stage, int microbatch) const { return forward_[slot(stage, microbatch)]; }
  int gradient(int stage, int microbatch) const { return gradient_[slot(stage, microbatch)]; }
  int weight(int stage, int microbatch) const { return weight_[slot(stage, microbatch)]; }

  /// Calls fn(number, link) for each action that `a` awaits. If `link` is not -1, a value must cross it before `a` can
  /// begin: `number` is then the value's SEND or RECV, or in a table without transfers the action that computes the
  /// value.
  template <class Fn>
  void for_each_awaited(const Action& a, Fn fn) const {
    const int m = a.microbatch;
    if (a.kind == ActionKind::kForward) {
      for (int link : links_.inputs(a.stage)) await(link, m, false, fn);
    } else if (a.kind == ActionKind::kInput || a.kind == ActionKind::kBackward) {
      fn(forward(a.stage, m), -1);
      for (int link = links_.first_output(a.stage); link < links_.first_output(a.stage + 1); ++link)
        await(link, m, true, fn);
    } else if (a.kind == ActionKind::kWeight) {
      fn(gradient(a.stage, m), -1);
    } else if (a.kind == ActionKind::kSend) {
      fn(a.stage < a.peer ? forward(a.stage, m) : gradient(a.stage, m), -1);
    }
  }

 private:
  size_t slot(int row, int microbatch) const {
    return static_cast<size_t>(row) * static_cast<size_t>(table_.microbatches) + static_cast<size_t>(microbatch);
  }
  /// The slot of a transfer; `back`: the transfer of the gradient.
  size_t transfer(int link, bool back, int microbatch) const { return slot(2 * link + back, microbatch); }
  template <class Fn>
  void await(int link, int microbatch, bool back, Fn fn) const {
    const StageLink ends = links_[link];
    if (!crosses(link) || !has_transfers()) {
      fn(back ? gradient(ends.to, microbatch) : forward(ends.from, microbatch), crosses(link) ? link : -1);
      return;
    }
    fn(recvs_[transfer(link, back, microbatch)], link);
    fn(sends_[transfer(link, back, microbatch)], link);
  }

  void check_table() const;
  void check_action(int rank, size_t position) const;
  void check_peer(int rank, const Action& a) const;
  void check_enough() const;
  void fill();
  void put(int& place, int number) const;
  void check_complete() const;
  void check_transfer_order() const;

  const Table& table_;
  const StageLinks& links_;
  std::vector<int> first_;                        // index: rank; then the number of all actions
  std::vector<int> forward_, gradient_, weight_;  // indices: stage and microbatch; -1: none
  std::vector<int> sends_, recvs_;                // indices: link, direction and microbatch; empty without transfers
};

}  // namespace weft::dist::pipeline
