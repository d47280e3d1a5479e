// MeshPartition: the placement of one captured step on a mesh. Pure data: making it allocates no tensors and needs no
// ranks or compiler. Ranks whose shards have the same shapes share one local graph.
#pragma once
#include <string>
#include <vector>

#include "compiler/options.h"
#include "distributed/overlap/arrange.h"
#include "distributed/plan/collectives.h"
#include "distributed/plan/pipeline_plan.h"
#include "distributed/strategies/strategies.h"
#include "framework/dispatch/rank/communicator.h"

namespace weft::dist {

/// The purpose of a plan; by default, to run on this machine.
struct PartitionScope {
  bool for_machine = false;  // schedules are made for the links of options.machine, not for options.communication
  bool every_class = true;   // false: only the first and the last rank's graph are made
};

/// A plan that Plan::automatic() compared and did not choose.
struct RejectedCandidate {
  std::string text;  // "dp2,tp2, zero 1, sequence on, keep_gathered off"
  double step_seconds = 0;
  int64_t peak_bytes = 0;
  std::string reason;
};

struct MeshPartition {
  Mesh mesh;   // the mesh of the placements: `world` without pp
  Mesh world;  // the mesh of all ranks
  Plan plan;
  Ref<Graph> joint;      // the joint graph; with pp, for one microbatch
  bool on_meta = false;  // some value of the joint graph is on meta: the plan is made for the CPU, and cannot run
  Pins pins;
  Decision decision;
  std::vector<int> class_of;         // index: rank of `mesh`; -1: not made
  std::vector<LocalGraph> locals;    // index: class; simplified; its collectives come from the graph that runs
  std::vector<Ref<Graph>> arranged;  // index: class; bucketed and overlapped; with pp, equal to `locals`
  CommunicationReport communication;
  std::shared_ptr<PipelinePartition> pipeline;  // null without pp
  // Only for a compiled step with pp: the collectives of a rank by program, in the order in which the rank starts them.
  std::vector<std::vector<PlannedCollective>> launched;
  std::vector<std::string> notes;
  std::vector<RejectedCandidate> rejected;  // plans that Plan::automatic() rejected, fastest first

  struct RankPlace {
    int rank = 0;   // rank in `mesh`, whose dimensions keep their order in `world`
    int stage = 0;  // position in the pipeline
  };
  /// The place of each rank of `world`.
  std::vector<RankPlace> places() const;
  /// The number of a rank's program. The programs of a shape class are consecutive, ordered by position in the
  /// pipeline.
  int program_of(const RankPlace& p) const { return class_of[p.rank] * (pipeline ? pipeline->ranks : 1) + p.stage; }
};

/// Throws InvalidArgument if the plan does not fit the step, and FailedPrecondition for a collective that
/// `options.forbid` forbids.
MeshPartition plan_mesh(const Ref<Graph>& joint, const CompileOptions& options, const PartitionScope& scope = {});

}  // namespace weft::dist
