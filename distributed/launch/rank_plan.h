// The plan of one rank of a pipeline: plans each part (stages/split.h) once, and copies the plans in the order of the
// rank's actions, with its sends and receives.
#pragma once
#include <span>

#include "compiler/exec/entry.h"
#include "distributed/propagate/emit.h"
#include "distributed/stages/split.h"

namespace weft::dist {

struct RankProgramCall {
  const SplitCall& step;  // its table has SEND and RECV for `crossings`
  const StepSplit& split;
  std::span<const Crossing> crossings;
  const CompileOptions& options;
  std::span<const int> order;  // an order in which all actions can run (pipeline::Checked)
};

struct RankProgram {
  internal::PreparedGraph planned;
  std::vector<PlannedCollective> transfers;  // the values that it sends and receives, by site
};

/// The plan of a rank of the table, without loaded kernels. The commit point is the same place for all ranks: before
/// the first level of the update at which a rank writes a cell.
RankProgram plan_rank(const RankProgramCall& call, int rank);

}  // namespace weft::dist
