// Dead code elimination: removes nodes without a path to an output, a cell write or a side effect, then cells and
// captured tensors that nothing refers to any more.
// Before: any valid graph. After: the same results; all arguments stay; nodes keep their order.
#pragma once
#include "framework/ir/graph.h"

namespace weft {

/// For each node, whether dce keeps it.
std::vector<bool> live_nodes(const Graph& g);

Ref<Graph> dce(const Graph& g);

}  // namespace weft
