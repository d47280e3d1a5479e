// Emission: the graph of one rank, as a decision has it: local shapes, run-time coordinates, collectives as nodes.
// Ranks whose shards have the same shapes share one graph.
#pragma once
#include <string>
#include <vector>

#include "distributed/propagate/decide.h"

namespace weft::dist {

/// One collective of the local graph.
struct PlannedCollective {
  Move move = Move::kAllReduce;
  Axes axes;
  ReduceOp op = ReduceOp::kSum;
  DType dtype = kFloat32;
  int64_t bytes = 0;   // of the rank's operand or result, whichever is larger
  bool backward = false;
  std::string what;    // "wqkv.weight", "x of dot at model.cc:12"
  std::string why;     // "blocks.0/attn: dot at linear.cc:20 needs [..]; it lies as [..]"
};

struct LocalGraph {
  Ref<Graph> graph;  // cells are stand-ins of local type, in the order of the joint graph's
  std::vector<PlannedCollective> collectives;
};

/// Ranks with the same key have the same local graph.
std::string shape_class(const Mesh& mesh, const Graph& g, const Decision& d, int rank);
LocalGraph emit(const Mesh& mesh, const Graph& g, const Decision& d, const Pins& pins, int rank);

}  // namespace weft::dist
