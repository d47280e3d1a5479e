// The graph interpreter: runs a graph node by node through dispatch. It is the reference for everything compiled. Under
// capture it inlines one graph into another.
#pragma once
#include "framework/ir/graph.h"

namespace weft {

/// The outputs of the graph for these arguments (eager or traced). Cells are read now and written at the end.
std::vector<Tensor> interpret(const Graph& g, std::span<const Tensor> args);

}  // namespace weft
