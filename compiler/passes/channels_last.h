// Convolutions are products over windows. Their results have the channels last in memory, and a permute gives them the
// order of dims that the model uses. This pass moves such permutes after the ops that read them, so that a network
// keeps one order in memory from product to product (as PyTorch's memory format channels_last does).
// Before: a lowered graph. After: every output, write and side effect has the same bits. Ops that also read a parameter
// or another cell keep their order of dims, because the cell has that order.
#pragma once
#include "framework/ir/graph.h"

namespace weft {

/// Null if nothing applies.
Ref<Graph> channels_last(const Graph& g);

}  // namespace weft
