// Whether running a node can end in an error.
#pragma once
#include "framework/ir/graph.h"

namespace weft::internal {

/// Whether the node's kernel, or a node of its bodies, throws for some values of its operands (kMayThrow): an index out
/// of range, a division of integers by zero, an op of the program's own, a loop that does not end.
bool may_throw(const Node& n);

}  // namespace weft::internal
