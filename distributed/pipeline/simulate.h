// The time of a table of actions, and the memory that it keeps alive. Times are doubles in any unit; for whole numbers,
// all results are exact.
#pragma once
#include <array>
#include <cstddef>
#include <vector>

#include "distributed/pipeline/table.h"

namespace weft::dist::pipeline {

struct ActionCosts {
  /// Time that an action occupies its rank, by stage and kind. SEND and RECV only start a transfer.
  std::vector<std::array<double, kKinds>> times;
  /// Time of a transfer between two ranks, by link, from the later start of its SEND and RECV. Transfers do not slow
  /// each other down. Empty: 0.
  std::vector<double> wire;
  /// Memory that one microbatch keeps alive from its F to its W or B, by stage, in any unit. Empty: 1.
  std::vector<double> activation;
  /// The part of the shorter of two joined actions (Action::with_next) that costs no time, from 0 to 1.
  double overlap = 0;

  double& time(int stage, ActionKind kind) { return times[stage][static_cast<size_t>(kind)]; }
  double time(int stage, ActionKind kind) const { return times[stage][static_cast<size_t>(kind)]; }
  /// Equal stages, with B = I + W.
  static ActionCosts equal(int stages, double forward = 1, double input = 1, double weight = 1);
};

struct Simulation {
  struct BusySpan {
    double begin = 0, end = 0;
  };
  struct RankUse {
    double busy = 0;
    /// Idle time until all ranks have ended: the bubble if the step commits on all ranks together.
    double idle = 0;
    /// Idle time between the rank's own first and last action that takes time: the bubble if each rank continues alone.
    double idle_inside = 0;
    int alive = 0;          // the most microbatches of its stages between their F and their W or B
    double activation = 0;  // the largest sum of ActionCosts::activation that these keep alive
  };
  std::vector<std::vector<BusySpan>> spans;  // indexed like Table::ranks
  std::vector<RankUse> ranks;
  double makespan = 0;

  /// The largest over all ranks.
  double idle() const;
  double idle_inside() const;
};

/// Every rank runs its actions in order, each as early as possible. Throws like check(), and on times and sizes that
/// are negative or not finite.
Simulation simulate(const Table& table, const StageLinks& links, const ActionCosts& costs);

}  // namespace weft::dist::pipeline
