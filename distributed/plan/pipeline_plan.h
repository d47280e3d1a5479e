// The part of a plan for the mesh dimension pp: the cut into stages, the table of actions, and the graphs of each rank.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "compiler/cost/machine/machine.h"
#include "distributed/pipeline/simulate.h"
#include "distributed/propagate/emit.h"
#include "distributed/stages/split.h"
#include "framework/mesh/mesh.h"
#include "framework/mesh/plan.h"

namespace weft::dist {

struct PipelinePartition {
  int ranks = 1;     // number of ranks along pp
  int world = 1;     // number of all ranks
  Ref<Graph> joint;  // the joint graph of the step, with the loop over microbatches
  Microbatch microbatch;
  StageCut cut;              // made for the first shape class, and used for all
  bool gather_once = false;  // Plan::pipeline_gather
  pipeline::Table schedule;  // without SEND and RECV, unless they come from a file
  CutOptions cutting;
  /// Policies of recomputation, from the cheapest to the policy that keeps least: for each the nodes of the first shape
  /// class that backward need not read.
  std::vector<std::vector<bool>> recompute;
  /// The number of combinations of cut and policy, which are tried in order for a memory budget: for each policy the
  /// cut without a limit of memory, then the cut with the limit.
  size_t choices() const { return 2 * recompute.size(); }
  size_t choice = 0;  // the chosen combination, from which all fields below follow
  std::vector<Crossing> crossings;
  pipeline::Table table;            // the table with SEND and RECV
  pipeline::ActionCosts costs;      // result of predict(), in seconds and bytes
  pipeline::Simulation simulation;  // result of predict()
  std::vector<int> order;           // the numbers of all actions, in an order in which they can run
  std::vector<StepSplit> splits;    // index: shape class

  SplitCall call(const Graph& local) const { return {*joint, microbatch, local, cut, table, gather_once}; }
  /// A text about the cut, the bubbles and the memory, for reports.
  std::string to_string() const;
  /// Sets costs and simulation for a machine. `mesh`: the mesh of the other dimensions; `local`: the graph that was
  /// cut.
  void predict(const Mesh& mesh, const Graph& local, const Machine& machine);
  /// The number of ranks that share a device: all ranks, if they are threads of one CPU.
  double sharing(const Machine& machine) const { return machine.shares_cores ? world : 1; }
};

/// The mesh of the other dimensions: a rank's placement does not depend on its stage. Throws InvalidArgument for a view
/// over pp.
Mesh without_pipeline(const Mesh& mesh);
/// The number of ranks along pp; 1 without it.
int pipeline_ranks(const Mesh& mesh);
/// The table of Plan::pipeline: "1f1b", "interleaved_1f1b:4" or "my.csv". Throws InvalidArgument for an unknown
/// schedule or unsuitable numbers. A file is checked when its step is cut.
pipeline::Table pipeline_table(const std::string& schedule, int ranks, int64_t microbatches);

/// The default number of microbatches for a batch: at most two for each rank along pp, else the fewest that the mesh
/// and the schedule support. 1 without pp, and if there is no such number.
int64_t default_microbatches(const Mesh& mesh, const Plan& plan, int64_t batch);

/// The sends and receives of a microbatch between stages on different ranks.
std::vector<PlannedCollective> transfers_of(const PipelinePartition& p, const Graph& local);

/// Policies of recomputation for a graph with gradients, cheapest first: the standard policy and, with `budget`,
/// policies that keep less.
std::vector<std::vector<bool>> recompute_policies(const Graph& g, bool budget);

/// Cuts the graphs that the ranks of the other dimensions compute for one microbatch, one for each shape class, by the
/// first choice. `mesh`: the mesh of these dimensions. `p` must have ranks, joint, microbatch and `recompute`; an empty
/// `recompute` recomputes nothing. `memory_budget`: bytes of a rank; 0: none. Throws InvalidArgument for a schedule or
/// a cut that the step does not support.
void plan_pipeline(PipelinePartition& p, const Mesh& mesh, const Plan& options, const Machine& machine,
                   int64_t memory_budget, std::span<const Ref<Graph>> locals);
/// Cuts by another choice. Returns false and changes nothing if the cut equals the current cut.
bool lay_out(PipelinePartition& p, const Mesh& mesh, std::span<const Ref<Graph>> locals, size_t choice);

}  // namespace weft::dist
