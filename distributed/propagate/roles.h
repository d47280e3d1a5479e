// Roles: which dims of the values of a graph are the batch and the sequence of its arguments (their dims 0 and 1).
// Roles follow values through every op that keeps these dims.
#pragma once
#include <vector>

#include "framework/ir/graph.h"

namespace weft::dist {

struct RoleSeg {
  int64_t extent = 1;
  char role = 0;  // 'b', 't' or 0
};
/// The segments of each dim, major first. Only the first result of a node has roles.
using ValueRoles = std::vector<std::vector<RoleSeg>>;

/// Roles by node. Arguments of rank 2 and more have both roles; arguments of rank 1 have a batch.
std::vector<ValueRoles> find_roles(const Graph& g);

}  // namespace weft::dist
