// Ops without a kernel, and those whose parts fuse better, become the primitives that define them: everything left can
// be launched.
#pragma once
#include "framework/base/function_ref.h"
#include "framework/ir/graph.h"

namespace weft::internal {

/// Replaces each node that unfolds (kUnfolds) or has neither kernel nor view by its decomposition, again and again
/// until none is left. The graph itself if there is nothing to do. Throws for an op that has none of the three.
Ref<Graph> lower(const Graph& g);

/// Replaces the nodes that `which` picks by their decompositions, once.
Ref<Graph> expand(const Graph& g, FunctionRef<bool(const Node&)> which);

}  // namespace weft::internal
