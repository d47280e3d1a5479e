// Copies a graph by running through it, for replacements that are written as ops.
#pragma once
#include <vector>

#include "framework/base/function_ref.h"
#include "framework/ir/graph.h"

namespace weft {

/// The replacement of a node, given its operands in the new graph; empty to copy the node. Ops called here become nodes
/// with the line, scope and backward mark of the old node.
using Replacement = FunctionRef<std::vector<Tensor>(const Node&, std::span<const Tensor>)>;

/// Copies `g` with these replacements and keeps its stage. `record`: replacements may be differentiated later.
Ref<Graph> retrace(const Graph& g, Replacement replacement, bool record = false);

}  // namespace weft
