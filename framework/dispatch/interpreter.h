// The graph interpreter: node by node through dispatch. The reference for everything compiled, and, under capture,
// the way one graph is inlined into another.
#pragma once
#include "framework/ir/graph.h"

namespace weft {

/// The outputs of the graph for these arguments (eager or traced). Cells are read now and written at the end.
std::vector<Tensor> interpret(const Graph& g, std::span<const Tensor> args);

}  // namespace weft
