// How much memory a graph may need at its peak, told before it is fused and planned: what would lie in memory by
// KeepCosts, in the order of the nodes. Off by a factor that graphs made from one graph share, so it compares them.
#pragma once
#include <cstdint>

#include "framework/ir/graph.h"

namespace weft {

/// Bytes of values that are no arguments, cells or results.
int64_t estimated_peak(const Graph& g);

}  // namespace weft
