// Forward values of a stage that its backward actions compute again instead of reading what F kept.
#pragma once
#include <vector>

#include "distributed/stages/cut.h"

namespace weft::dist {

/// The forward nodes that actions of their stage compute again, by node: those that may be (StageOf::may_recompute) and
/// that a backward node of the stage follows from.
struct Recomputed {
  Recomputed(const Graph& g, const StageCut& cut);
  bool any(int32_t id) const { return input[static_cast<size_t>(id)] || weight[static_cast<size_t>(id)]; }
  /// In I and in W; B computes what either does.
  std::vector<bool> input, weight;
};

}  // namespace weft::dist
