// Documents packed in a row, as a step's attention knows them: the ids that its masks compare.
#pragma once
#include <vector>

#include "framework/ir/graph.h"

namespace weft::dist {

/// The ids [.., sequence] (integers) of which the masks of the graph's attention ask whether they are equal at a query
/// and at a key; empty if the graph has no attention. Throws if there are none, of several lengths, or made of more
/// than the graph's arguments.
std::vector<Value> find_documents(const Graph& g);

}  // namespace weft::dist
