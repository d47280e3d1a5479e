// Forward values of a stage that its backward actions compute again instead of reading values that F kept.
#pragma once
#include <vector>

#include "distributed/stages/cut.h"

namespace weft::dist {

/// The forward nodes that actions of their stage compute again: a node with StageOf::may_recompute from which a
/// backward node of the stage follows.
struct Recomputed {
  Recomputed(const Graph& g, const StageCut& cut);
  bool any(int32_t id) const { return input[id] || weight[id]; }
  /// Whether I, and whether W, computes each node again; B computes the union.
  std::vector<bool> input, weight;
};

}  // namespace weft::dist
