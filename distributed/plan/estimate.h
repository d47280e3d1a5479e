// What one rank of a plan takes: time and memory, predicted from its local graph alone. Nothing is allocated.
#pragma once
#include "distributed/plan/collectives.h"
#include "distributed/plan/machine.h"

namespace weft::dist {

struct Estimate {
  double products = 0;         // operations of matrix products of one step
  double compute_seconds = 0;  // kernels one after another, each at its roofline
  double comm_seconds = 0;     // all collectives
  double exposed_seconds = 0;  // those that nothing hides
  double step_seconds() const { return compute_seconds + exposed_seconds; }
  int64_t cell_bytes = 0;  // parameters, optimiser state and other cells at rest
  int64_t peak_bytes = 0;  // cells, arguments, results and what is live at once
};

/// How many nodes of the machine a group along `axes` reaches: ranks are placed on nodes in their order.
int nodes_of(const Mesh& mesh, const std::string& axes, const MachinePreset& machine);
double seconds_of(const Mesh& mesh, const PlannedCollective& c, const MachinePreset& machine);

/// The links between the ranks of a mesh on this machine, for schedules that are made for it.
Network network_of(const Mesh& mesh, const MachinePreset& machine);

/// `g`: of one rank, as it runs. With `memory` false the peak is left out.
Estimate estimate(const Mesh& mesh, const Graph& g, const std::vector<PlannedCollective>& collectives,
                  const MachinePreset& machine, bool memory = true);

}  // namespace weft::dist
