#include "distributed/plan/estimate.h"

#include "compiler/cost/keep_cost.h"
#include "compiler/cost/peak_estimate.h"
#include "compiler/cost/roofline.h"
#include "ops/core/core.h"

namespace weft::dist {

double seconds_of(const Mesh& mesh, const PlannedCollective& c, const Machine& machine) {
  return collective_seconds(c.kind, static_cast<double>(c.bytes), mesh, c.axes, machine);
}

Estimate estimate(const Mesh& mesh, const Graph& g, const std::vector<PlannedCollective>& collectives,
                  const Machine& machine, bool memory) {
  Estimate e;
  const KeepCosts costs(g);
  double stored = 0;
  for (int32_t id = 0; id < g.size(); ++id) {
    const Node& n = g.node(id);
    for (int32_t k = 0; k < static_cast<int32_t>(n.outputs.size()); ++k) {
      const ValueCost& v = costs.value({id, k});
      if (!costs.node(id).alias && (v.stored || v.stored_after))
        stored += static_cast<double>(n.outputs[static_cast<size_t>(k)].nbytes());
    }
    if (!n.op->is(kContraction) && !n.op->decompose) continue;
    const Cost work = op_cost(g, n);
    e.at_most |= work.at_most;
    e.compute_seconds += launch_seconds(machine, work);
  }
  // Values in memory between kernels are written once and read once; the update reads and writes every cell.
  for (const Ref<Cell>& c : g.cells) e.cell_bytes += c->type.nbytes();
  const double moved = stored + static_cast<double>(e.cell_bytes);
  e.compute_seconds += roofline_seconds(machine, {.bytes = 2 * moved, .written = moved});
  for (const PlannedCollective& c : collectives) {
    const double s = seconds_of(mesh, c, machine);
    e.comm_seconds += s;
    e.exposed_seconds += c.exposed * s;
  }
  if (!memory) return e;
  e.peak_bytes = e.cell_bytes + estimated_peak(g);
  for (Value v : g.inputs) e.peak_bytes += g.type(v).nbytes();
  for (Value v : g.outputs) e.peak_bytes += g.type(v).nbytes();
  return e;
}

}  // namespace weft::dist
