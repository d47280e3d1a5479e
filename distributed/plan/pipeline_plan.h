// What the mesh dimension pp adds to a plan: the cut into stages, the table of actions, and what each rank computes.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "compiler/cost/machine.h"
#include "distributed/pipeline/simulate.h"
#include "distributed/propagate/emit.h"
#include "distributed/stages/split.h"
#include "framework/mesh/mesh.h"
#include "framework/mesh/plan.h"

namespace weft::dist {

struct PipelinePlan {
  int ranks = 1;     // along pp
  int world = 1;     // all ranks
  Ref<Graph> joint;  // of the step, with the loop over microbatches
  Microbatch microbatch;
  StageCut cut;              // of the first shape class, and of all others
  bool gather_once = false;  // Plan::pipeline_gather
  pipeline::Table schedule;  // without SEND and RECV, unless it is a file with them
  CutOptions cutting;
  /// By policy of recomputation, from the cheapest to the one that keeps least: the nodes of the first shape class that
  /// backward need not read.
  std::vector<std::vector<bool>> recompute;
  /// Cuts and policies in the order in which they are tried for a memory budget: for each policy the cut without a
  /// limit of memory, then the one with it.
  size_t choices() const { return 2 * recompute.size(); }
  size_t choice = 0;  // the one that all below is of
  std::vector<Crossing> crossings;
  pipeline::Table table;            // with SEND and RECV
  pipeline::Costs costs;            // of predict(): seconds and bytes
  pipeline::Simulation simulation;  // of predict()
  std::vector<int> order;           // the numbers of all actions, in an order in which they can run
  std::vector<StepSplit> splits;    // by shape class

  SplitCall call(const Graph& local) const { return {*joint, microbatch, local, cut, table, gather_once}; }
  /// The cut, the bubbles and the memory, for reports.
  std::string to_string() const;
  /// Sets costs and simulation for a machine. `mesh`: of the other dimensions; `local`: the graph that the cut is of.
  void predict(const Mesh& mesh, const Graph& local, const Machine& machine);
  /// How many ranks share the device of one: all, if they are threads of one CPU.
  double sharing(const Machine& machine) const { return machine.shares_cores ? world : 1; }
};

/// The mesh of the other dimensions: a rank's placement does not depend on its stage. Throws InvalidArgument for a view
/// over pp.
Mesh without_pipeline(const Mesh& mesh);
/// The number of ranks along pp; 1 without it.
int pipeline_ranks(const Mesh& mesh);
/// The table of Plan::pipeline: "1f1b", "interleaved_1f1b:4" or "my.csv". Throws InvalidArgument for a schedule that
/// does not exist or is for other numbers. A file is checked when its step is cut.
pipeline::Table pipeline_table(const std::string& schedule, int ranks, int64_t microbatches);

/// The number of microbatches for a batch if none is given: at most two for each rank along pp, else the fewest that
/// the mesh and the schedule can have. 1 without pp, and if there is no such number.
int64_t default_microbatches(const Mesh& mesh, const Plan& plan, int64_t batch);

/// What stages on different ranks send each other for a microbatch, and receive.
std::vector<PlannedCollective> transfers_of(const PipelinePlan& p, const Graph& local);

/// Policies of recomputation for a graph with gradients, the cheapest first: the one that every plan has and, for a
/// budget, others that keep less.
std::vector<std::vector<bool>> recompute_policies(const Graph& g, bool budget);

/// Cuts the graphs that the ranks of the other dimensions compute for one microbatch, one for each shape class, by the
/// first choice. `mesh`: of these dimensions. `p` has ranks, joint, microbatch and `recompute`; if that is empty,
/// nothing is recomputed. `memory_budget`: bytes of a rank; 0: none. Throws InvalidArgument for a schedule or a cut
/// that the step does not have.
void plan_pipeline(PipelinePlan& p, const Mesh& mesh, const Plan& options, const Machine& machine,
                   int64_t memory_budget, std::span<const Ref<Graph>> locals);
/// The same by another choice. False, and nothing changed, if it has the cut of the choice before.
bool lay_out(PipelinePlan& p, const Mesh& mesh, std::span<const Ref<Graph>> locals, size_t choice);

}  // namespace weft::dist
