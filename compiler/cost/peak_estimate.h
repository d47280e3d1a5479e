// Estimates the peak memory of a graph before it is fused and planned: the values that KeepCosts expects in memory, in
// the order of the nodes. The error is a factor that variants of one graph share, so the estimate can compare them.
#pragma once
#include <cstdint>

#include "framework/ir/graph.h"

namespace weft {

/// Peak bytes of values other than arguments, cells and results.
int64_t estimated_peak(const Graph& g);

}  // namespace weft
