// Common subexpression elimination: of nodes with equal op, operands, attributes and types, the first one stays.
// Never merged: side effects; structural nodes other than reads of cells and captured tensors (a barrier keeps a copy
// on purpose); random ops of different op_id, which is an attribute; while grad nodes are pending, what they
// differentiate with respect to, and nodes that differ in no_grad.
// Before: any valid graph. After: every result has the same bits; no more nodes than before.
#pragma once
#include "framework/ir/graph.h"

namespace weft {

Ref<Graph> cse(const Graph& g);

}  // namespace weft
