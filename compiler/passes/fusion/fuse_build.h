// From a partition to the fused graph: the bodies of the groups and the order of the launches.
#pragma once
#include "compiler/passes/fusion/fuse_duplicate.h"

namespace weft::fusion {

/// One group as a graph of its own.
struct GroupBody {
  Ref<Graph> graph;            // null: its only node stays unchanged
  std::vector<Value> inputs;   // values of the old graph
  std::vector<Value> outputs;  // values of the old graph
  std::vector<int32_t> nodes;  // the group's own nodes that are live in it
};

/// The body of group i.
GroupBody make_body(const Partition& p, const Flow& flow, int32_t i);

/// The graph with one node per group. `made` gets the new node of each group, or -1.
Ref<Graph> build_fused(const Partition& p, const std::vector<GroupBody>& bodies, std::vector<int32_t>* made);

}  // namespace weft::fusion
