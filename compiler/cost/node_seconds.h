// The predicted time of a node of a graph. Partitioner, schedules, cuts and reports all use it.
#pragma once
#include "compiler/cost/roofline.h"
#include "framework/ir/graph.h"

namespace weft {

/// The matrices that a contraction computes; grouped rows count as one matrix. Unknown for other nodes.
ProductShape product_shape(const Graph& g, const Node& n);

/// The roofline of op_cost(), including the waves of a product's tiles, without the launch.
double node_seconds(const Machine& machine, const Graph& g, const Node& n);

}  // namespace weft
