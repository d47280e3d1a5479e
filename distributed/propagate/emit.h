// Emission: the graph of one rank, as a decision has it: local shapes, run-time coordinates, collectives as nodes.
// Ranks whose shards have the same shapes share one graph.
#pragma once
#include <string>
#include <vector>

#include "distributed/propagate/decide.h"

namespace weft::dist {

enum class Phase : uint8_t { kForward, kBackward, kUpdate };
enum class Subject : uint8_t { kParameter, kActivation, kGradient };

/// One collective of the local graph.
struct PlannedCollective {
  Collective kind = Collective::kAllReduce;
  std::string axes;  // mesh dimensions, as Mesh::axes reads them: "tp", "dp,cp"
  ReduceOp op = ReduceOp::kSum;
  DType dtype = kFloat32;
  int64_t bytes = 0;  // of the rank's operand or result, whichever is larger; all-to-all: smaller
  Phase phase = Phase::kForward;
  Subject subject = Subject::kActivation;
  int64_t site = 0;  // attribute of its node, from 1; unique in the graph
  std::string
      what;  // the parameter whose value or gradient it is: "blocks.0.attn.qkv.weight"; else "blocks.0/attn: dot"
  std::string line;            // "model.cc:12", of the op whose result it is
  std::string why;             // "dot at linear.cc:20: operand 0 needs [..]; it lies as [..]"
  int32_t members = 1;         // values that share the message
  double exposed = 1;          // predicted share of its time in which the rank waits
  std::string hidden_by = {};  // what runs meanwhile; empty: nothing
};

struct LocalGraph {
  Ref<Graph> graph;  // cells are stand-ins of local type, in the order of the joint graph's
  std::vector<PlannedCollective> collectives;
};

/// Axes over which some value is split unevenly: ranks with the same coordinates along each have the same local graph.
std::vector<Axes> uneven_axes(const Mesh& mesh, const Decision& d);
LocalGraph emit(const Mesh& mesh, const Graph& g, const Decision& d, const Pins& pins, int rank);

}  // namespace weft::dist
