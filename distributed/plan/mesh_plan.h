// MeshPlan: one captured step laid over a mesh. Pure data, made without memory, ranks or a compiler; ranks whose shards
// have the same shapes share one local graph.
#pragma once
#include <string>
#include <vector>

#include "compiler/options.h"
#include "distributed/overlap/arrange.h"
#include "distributed/plan/collectives.h"
#include "distributed/strategies/strategies.h"
#include "framework/dispatch/communicator.h"

namespace weft::dist {

/// What a plan is made for. The default: to run here.
struct PlanScope {
  bool for_machine = false;  // schedules are made for the links of options.machine, not for options.communication
  bool every_class = true;   // false: only the first and the last rank's graph are made
};

/// A plan that was considered and not taken.
struct RejectedPlan {
  std::string text;  // "dp2,tp2, zero 1, sequence"
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
  std::vector<LocalGraph> locals;    // by class, simplified; collectives as they are in the graph that runs
  std::vector<Ref<Graph>> arranged;  // by class: bucketed and overlapped
  CommunicationReport communication;
  std::vector<std::string> notes;
  std::vector<RejectedPlan> rejected;  // by Plan::automatic(), the fastest first
};

/// Throws InvalidArgument for a plan that does not fit the step, and for collectives that `options.forbid` forbids.
MeshPlan plan_mesh(const Ref<Graph>& joint, const CompileOptions& options, const PlanScope& scope = {});

}  // namespace weft::dist
