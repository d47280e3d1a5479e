// MeshPlan: one captured step laid over a mesh. Pure data, made without memory, ranks or a compiler; ranks whose shards
// have the same shapes share one local graph.
#pragma once
#include <string>
#include <vector>

#include "distributed/passes/arrange.h"
#include "distributed/plan/collectives.h"
#include "distributed/strategies/strategies.h"

namespace weft::dist {

/// How a step is to be laid out.
struct LayOut {
  Mesh mesh;
  Plan plan;
  CommunicationOptions communication = {};
  std::vector<std::string> forbid = {};   // rules of distributed/plan/forbid.h
  std::vector<std::string> disable = {};  // passes to leave out
};

struct MeshPlan {
  Mesh mesh;
  Plan plan;
  Ref<Graph> joint;
  Pins pins;
  Decision decision;
  std::vector<int> class_of;       // by rank
  std::vector<LocalGraph> locals;  // by class, simplified; collectives as they are in the graph that runs
  std::vector<Ref<Graph>> arranged;  // by class: bucketed and overlapped
  CommunicationReport communication;
  std::vector<std::string> notes;
};

/// Throws InvalidArgument for a plan that does not fit the step, and for collectives that `how.forbid` forbids.
MeshPlan plan_mesh(const Ref<Graph>& joint, const LayOut& how);

}  // namespace weft::dist
