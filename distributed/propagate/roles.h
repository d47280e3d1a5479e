// Roles: which dims of a graph's values are the batch and the sequence of its arguments (their dims 0 and 1), followed
// through every op that keeps them.
#pragma once
#include <vector>

#include "framework/ir/graph.h"

namespace weft::dist {

struct RoleSeg {
  int64_t extent = 1;
  char role = 0;  // 'b', 't' or 0
};
/// By dim, the segments it is made of, major first; only of a node's first result.
using ValueRoles = std::vector<std::vector<RoleSeg>>;

/// By node. Arguments of rank 2 and more have both roles, of rank 1 a batch.
std::vector<ValueRoles> find_roles(const Graph& g);

}  // namespace weft::dist
