// The derivative of a body as nodes of the same graph, for structural ops that split both (ops/core/functions/loop.h).
#pragma once
#include <vector>

#include "framework/ir/graph.h"

namespace weft::internal {

/// A body with its derivative. The inputs are the body's inputs, then a gradient for each selected result. The outputs
/// are the body's outputs, then the gradients of the selected inputs that a selected result depends on.
struct JointBody {
  Ref<Graph> graph;
  int32_t first_backward = 0;  // nodes from here on belong to the derivative
  std::vector<bool> reached;   // selected input -> whether it has a gradient
};
JointBody differentiate_body(const Graph& body, const std::vector<bool>& inputs, const std::vector<bool>& outputs);

}  // namespace weft::internal
