// The predicted time of a node of a graph. Partitioner, schedules, cuts and reports all take it from here.
#pragma once
#include "compiler/cost/roofline.h"
#include "framework/ir/graph.h"

namespace weft {

/// The matrices that a contraction makes; of grouped rows, one matrix of all of them. Unknown for other nodes.
ProductShape product_shape(const Graph& g, const Node& n);

/// Roofline of op_cost(), with the waves of a product's tiles. Without the launch.
double node_seconds(const Machine& machine, const Graph& g, const Node& n);

}  // namespace weft
