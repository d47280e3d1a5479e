// How long a table of actions takes, and how much it keeps alive. Times are doubles of any unit; with whole numbers all
// results are exact.
#pragma once
#include <array>
#include <cstddef>
#include <vector>

#include "distributed/pipeline/table.h"

namespace weft::dist::pipeline {

struct Costs {
  /// By stage and kind: how long the action occupies its rank. SEND and RECV only start a transfer.
  std::vector<std::array<double, kKinds>> times;
  /// By link: how long a value takes between two ranks, from when both its SEND and its RECV have started. Transfers
  /// do not slow each other down. Empty: no time.
  std::vector<double> wire;
  /// By stage: what one microbatch keeps alive from its F to its W or B, in any unit. Empty: 1.
  std::vector<double> activation;
  /// The part of the shorter of two joined actions (Action::with_next) that costs no time, from 0 to 1.
  double overlap = 0;

  double& time(int stage, Kind kind) { return times[static_cast<size_t>(stage)][static_cast<size_t>(kind)]; }
  double time(int stage, Kind kind) const { return times[static_cast<size_t>(stage)][static_cast<size_t>(kind)]; }
  /// Equal stages, with B = I + W.
  static Costs equal(int stages, double forward = 1, double input = 1, double weight = 1);
};

struct Simulation {
  struct Span {
    double begin = 0, end = 0;
  };
  struct Rank {
    double busy = 0;
    /// Idle time until all ranks have ended: the bubble if the step commits on all ranks together.
    double idle = 0;
    /// Idle time between the rank's own first and last action that takes time: the bubble if ranks go on alone.
    double idle_inside = 0;
    int alive = 0;          // the most microbatches of its stages between their F and their W or B
    double activation = 0;  // the most of Costs::activation that these keep alive
  };
  std::vector<std::vector<Span>> spans;  // as Table::ranks
  std::vector<Rank> ranks;
  double makespan = 0;

  /// The worst rank's.
  double idle() const;
  double idle_inside() const;
};

/// Every rank runs its actions in their order, each as early as it can. Throws as check() does, and on times and sizes
/// that are negative or not finite.
Simulation simulate(const Table& table, const Links& links, const Costs& costs);

}  // namespace weft::dist::pipeline
