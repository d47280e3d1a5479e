// Packed documents as the attention of a step sees them: the ids that its masks compare.
#pragma once
#include <vector>

#include "framework/ir/graph.h"

namespace weft::dist {

/// The ids [.., sequence] (integers) that the masks of attention compare between query and key; empty if the graph has
/// no attention. Throws if attention compares no ids, if their lengths differ, or if they depend on more than
/// arguments.
std::vector<Value> find_documents(const Graph& g);

}  // namespace weft::dist
