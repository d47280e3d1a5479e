// Time and memory of one rank of a plan, predicted from its local graph alone. Nothing is allocated.
#pragma once
#include "distributed/plan/collectives.h"
#include "distributed/plan/pipeline_plan.h"

namespace weft::dist {

struct Estimate {
  double compute_seconds = 0;  // kernels one after another, each at its roofline
  double comm_seconds = 0;     // all collectives
  double exposed_seconds = 0;  // the part that nothing hides
  bool at_most = false;        // compute_seconds is a bound: the work of some op depends on data
  bool equal_loads = false;    // compute_seconds is for experts that get equal numbers of rows
  double step_seconds() const { return compute_seconds + exposed_seconds; }
  int64_t cell_bytes = 0;  // parameters, optimiser state and other cells at rest
  int64_t peak_bytes = 0;  // cells, arguments, results and the values that are live together
};

double seconds_of(const Mesh& mesh, const PlannedCollective& c, const Machine& machine);

/// `g`: the graph of one rank, as it runs. `memory`: false omits the peak.
Estimate estimate(const Mesh& mesh, const Graph& g, const std::vector<PlannedCollective>& collectives,
                  const Machine& machine, bool memory = true);

/// The estimate of a step in a pipeline, for the rank with the largest needs. Exposed time includes the waits of ranks
/// for each other. `local`: the graph that was cut.
Estimate estimate_pipeline(const PipelinePartition& p, const Graph& local, const Machine& machine);

}  // namespace weft::dist
