// Dead code elimination: nodes without a path to an output, a cell write or a side effect go, as do cells and captured
// tensors that nothing refers to any more.
// Before: any valid graph. After: the same results; arguments all stay; order of nodes as before.
#pragma once
#include "framework/ir/graph.h"

namespace weft {

Ref<Graph> dce(const Graph& g);

}  // namespace weft
