// MeshPlan: the placement of one captured step on a mesh. Pure data: making it needs no memory, ranks or compiler.
// Ranks whose shards have the same shapes share one local graph.
#pragma once
#include <string>
#include <vector>

#include "distributed/overlap/arrange.h"
#include "distributed/plan/collectives.h"
#include "distributed/strategies/strategies.h"
#include "framework/dispatch/communicator.h"

namespace weft::dist {

/// What plan_mesh() needs to know beside the step.
struct LayOut {
  Mesh mesh;
  Plan plan;
  CommunicationOptions communication = {};
  std::vector<std::string> forbid = {};   // rules of distributed/plan/forbid.h
  std::vector<std::string> disable = {};  // passes to leave out
  std::string machine = "cpu";            // Plan::automatic() minimises the step time on it
  int64_t memory_limit = 0;               // of Plan::automatic(): bytes of one rank; 0: no limit
  bool for_machine = false;               // schedules are for its links, not for `communication.network`
  double timeout = kDefaultTimeout;       // seconds a rank waits for the others in a collective
  bool every_class = true;                // false: only the graphs of the first and the last rank
};

/// A plan that Plan::automatic() compared and did not choose.
struct RejectedPlan {
  std::string text;  // "dp2,tp2, zero 1, sequence on, keep_gathered off"
  double step_seconds = 0;
  int64_t peak_bytes = 0;
  std::string reason;
};

struct MeshPlan {
  Mesh mesh;
  Plan plan;
  Ref<Graph> joint;
  Pins pins;
  Decision decision;
  std::vector<int> class_of;         // by rank; -1: not made
  std::vector<LocalGraph> locals;    // by class, simplified; the collectives are those of the graph that runs
  std::vector<Ref<Graph>> arranged;  // by class: bucketed and overlapped
  CommunicationReport communication;
  std::vector<std::string> notes;
  std::vector<RejectedPlan> rejected;  // of Plan::automatic(), the fastest first
};

/// Throws InvalidArgument if the plan does not fit the step, and FailedPrecondition for a collective that `how.forbid`
/// forbids.
MeshPlan plan_mesh(const Ref<Graph>& joint, const LayOut& how);

}  // namespace weft::dist
