// MeshPlan: the placement of one captured step on a mesh. Pure data: making it needs no memory, ranks or compiler.
// Ranks whose shards have the same shapes share one local graph.
#pragma once
#include <string>
#include <vector>

#include "compiler/options.h"
#include "distributed/overlap/arrange.h"
#include "distributed/plan/collectives.h"
#include "distributed/plan/pipeline_plan.h"
#include "distributed/strategies/strategies.h"
#include "framework/dispatch/communicator.h"

namespace weft::dist {

/// What a plan is made for. The default: to run here.
struct PlanScope {
  bool for_machine = false;  // schedules are made for the links of options.machine, not for options.communication
  bool every_class = true;   // false: only the first and the last rank's graph are made
};

/// A plan that Plan::automatic() compared and did not choose.
struct RejectedPlan {
  std::string text;  // "dp2,tp2, zero 1, sequence on, keep_gathered off"
  double step_seconds = 0;
  int64_t peak_bytes = 0;
  std::string reason;
};

struct MeshPlan {
  Mesh mesh;   // of the placements: without pp
  Mesh world;  // of all ranks
  Plan plan;
  Ref<Graph> joint;      // with pp: of one microbatch
  bool on_meta = false;  // some value of the joint graph is on meta: the plan is that of the CPU, and cannot run
  Pins pins;
  Decision decision;
  std::vector<int> class_of;         // by rank of `mesh`; -1: not made
  std::vector<LocalGraph> locals;    // by class, simplified; the collectives are those of the graph that runs
  std::vector<Ref<Graph>> arranged;  // by class: bucketed and overlapped; with pp as in `locals`
  CommunicationReport communication;
  std::shared_ptr<PipelinePlan> pipeline;  // null without pp
  // With pp, of a step that is compiled: by program the collectives of a rank in the order in which it starts them.
  std::vector<std::vector<PlannedCollective>> launched;
  std::vector<std::string> notes;
  std::vector<RejectedPlan> rejected;  // of Plan::automatic(), the fastest first

  struct Place {
    int rank = 0;   // in `mesh`, whose dimensions have the order that they have in `world`
    int stage = 0;  // position in the pipeline
  };
  /// By rank of `world`.
  std::vector<Place> places() const;
  /// The number of a rank's program: those of a shape class are behind each other, by position in the pipeline.
  int program_of(const Place& p) const {
    return class_of[static_cast<size_t>(p.rank)] * (pipeline ? pipeline->ranks : 1) + p.stage;
  }
};

/// Throws InvalidArgument if the plan does not fit the step, and FailedPrecondition for a collective that
/// `options.forbid` forbids.
MeshPlan plan_mesh(const Ref<Graph>& joint, const CompileOptions& options, const PlanScope& scope = {});

}  // namespace weft::dist
