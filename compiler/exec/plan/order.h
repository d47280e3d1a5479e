// Orders of execution. All orders give the same bits; they differ in the memory that they need.
#pragma once
#include <vector>

#include "framework/ir/graph.h"

namespace weft::internal {

/// The nodes that outputs, cell writes and side effects need, in the order of the graph.
std::vector<int32_t> insertion_order(const Graph& g);

/// The same nodes, list-scheduled for memory. A node that frees at least as much as it allocates runs as soon as it
/// can. A node computed from arguments and cells alone runs just before its first use. Side effects keep their order,
/// and readers of a cell stay before the node that computes its new value. Deterministic; not always better than
/// insertion order.
std::vector<int32_t> frugal_order(const Graph& g);

/// The graph with these nodes in this order, in stage "scheduled".
Ref<Graph> reorder(const Graph& g, const std::vector<int32_t>& order);

}  // namespace weft::internal
