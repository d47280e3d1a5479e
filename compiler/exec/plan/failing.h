// Which launches of a step can end in an error. A step that fails leaves its cells as they were, so the cells are
// written in place after the last of these launches.
#pragma once
#include <vector>

#include "framework/ir/graph.h"

namespace weft::internal {

/// Whether the node is the end of a sum over replicas that may die (distributed/launch/live_replicas.h).
bool ends_sum_over_replicas(const Graph& g, int32_t id);

/// For each node, in the order of the graph: whether its launch can throw for values that no earlier launch has
/// checked. A derivative reads the indices of its op again, in the same ranges. The end of a sum over replicas counts
/// as such a launch: if the sum fails, the step writes nothing.
std::vector<bool> failing_nodes(const Graph& g);

/// An order of the graph's nodes in which the nodes that compute new values of cells come after the nodes that can
/// throw, unless these need them; otherwise it is `order`.
std::vector<int32_t> writes_last(const Graph& g, const std::vector<int32_t>& order);

}  // namespace weft::internal
