// Common subexpression elimination: of several nodes with equal op, operands, attributes and types, only the first one
// stays. Some nodes are never merged:
// - nodes with side effects;
// - structural nodes, except reads of cells and of captured tensors (a barrier keeps a copy on purpose);
// - random ops of different op_id, which is an attribute;
// - while grad nodes are pending: nodes with respect to which they differentiate, and nodes that differ in no_grad.
//
// Before: any valid graph. After: every result has the same bits; there are no more nodes than before.
#pragma once
#include "framework/ir/graph.h"

namespace weft {

Ref<Graph> cse(const Graph& g);

}  // namespace weft
