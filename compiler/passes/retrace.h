// recapture() for passes whose replacements are written in ops.
#pragma once
#include <vector>

#include "framework/base/function_ref.h"
#include "framework/ir/graph.h"

namespace weft {

/// The results that replace a node, given its operands in the new graph; empty: a copy of the node. Ops called here
/// become nodes with the line, scope and mark of backward of the old node.
using Replacement = FunctionRef<std::vector<Tensor>(const Node&, std::span<const Tensor>)>;

/// Copies `g` with these replacements; the stage stays. `record`: replacements may be differentiated later.
Ref<Graph> retrace(const Graph& g, Replacement replacement, bool record = false);

}  // namespace weft
