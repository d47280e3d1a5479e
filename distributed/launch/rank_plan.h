// The plan of one rank of a pipeline: its parts (stages/split.h) planned once each, and stamped in the order of its
// actions, with what it sends and receives.
#pragma once
#include <span>

#include "compiler/exec/entry.h"
#include "distributed/propagate/emit.h"
#include "distributed/stages/split.h"

namespace weft::dist {

struct RankPlanCall {
  const SplitCall& step;  // its table has SEND and RECV for `crossings`
  const StepSplit& split;
  std::span<const Crossing> crossings;
  const CompileOptions& options;
  std::span<const int> order;  // an order in which all actions can run (pipeline::Checked)
};

struct RankPlan {
  internal::Planned planned;
  std::vector<PlannedCollective> transfers;  // what its sends and receives are for, by site
};

/// The plan of a rank of the table. Kernels are not loaded yet. Its commit point is the same place for all ranks: in
/// front of the first level of the update at which one of them writes a cell.
RankPlan plan_rank(const RankPlanCall& call, int rank);

}  // namespace weft::dist
