// Emission: makes the graph of one rank from a decision. Shapes are local, coordinates are run-time values, and
// collectives are nodes. Ranks whose shards have the same shapes share one graph.
#pragma once
#include <string>
#include <vector>

#include "distributed/propagate/decide.h"
#include "framework/ir/phase.h"

namespace weft::dist {

enum class Subject : uint8_t { kParameter, kActivation, kGradient, kScalar };

/// One collective of the local graph.
struct PlannedCollective {
  Collective kind = Collective::kAllReduce;
  std::string axes;  // mesh dimensions, as Mesh::axes reads them: "tp", "dp,tp"
  ReduceOp op = ReduceOp::kSum;
  DType dtype = kFloat32;
  int64_t bytes = 0;  // the larger of the rank's operand and result; all-to-all: the smaller
  Phase phase = Phase::kForward;
  Subject subject = Subject::kActivation;
  int64_t site = 0;     // the site attribute of its node, from 1; unique in the graph
  std::string what;     // the parameter of a value or gradient, "blocks.0.attn.qkv.weight"; else "blocks.0/attn: dot"
  std::string line;     // "model.cc:12", the line of the op whose result it moves
  std::string why;      // "dot at linear.cc:20: operand 0 needs [..]; it has [..]"
  int32_t members = 1;  // values that share the message
  double exposed = 1;   // predicted share of its time for which the rank waits
  std::string hidden_by = {};  // the work that runs at the same time; empty: none
};

struct LocalGraph {
  Ref<Graph> graph;  // cells are placeholders of local type, in the order of the cells of the joint graph
  std::vector<PlannedCollective> collectives;
};

/// Whether each node is a gradient or is computed from one. Constants count as neither: forward may share constants
/// with backward.
std::vector<bool> follows_gradients(const Graph& g);
/// Axes over which some value is split unevenly. Ranks with the same coordinates along them have the same local graph.
std::vector<Axes> uneven_axes(const Mesh& mesh, const Decision& d);
LocalGraph emit(const Mesh& mesh, const Graph& g, const Decision& d, const Pins& pins, int rank);

}  // namespace weft::dist
