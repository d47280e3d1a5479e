#include "distributed/plan/estimate.h"

#include <algorithm>

#include "compiler/cost/keep_cost.h"
#include "compiler/cost/node_seconds.h"
#include "compiler/cost/peak_estimate.h"
#include "compiler/cost/roofline.h"
#include "ops/core/collectives/collective.h"
#include "ops/core/core.h"
#include "ops/core/functions/loop.h"
#include "ops/core/products/dot.h"

namespace weft::dist {
namespace {

// For the first result of each node, the share of rows that hold data if experts have equal loads. An exchange has room
// for the rows of all ranks.
std::vector<double> filled_rows(const Graph& g) {
  std::vector<double> filled(static_cast<size_t>(g.size()), 1);
  const auto rows = [&](Value v) { return g.type(v).shape.size() > 0 ? static_cast<double>(g.type(v).shape[0]) : 0; };
  for (int32_t id = 0; id < g.size(); ++id) {
    const Node& n = g.node(id);
    if (n.outputs.empty()) continue;
    double& share = filled[id];
    const double out = rows({id, 0});
    for (const Value v : n.inputs) {
      const double in = filled[v.node];
      if (n.op == &all_to_all_rows_op && v == n.inputs[0] && out > 0)
        share = std::min(1.0, in * rows(v) / out);
      else if (in < share && rows(v) == out)
        share = in;
    }
  }
  return filled;
}

double bytes_of(const Graph& g, const std::vector<Value>& values) {
  int64_t bytes = 0;
  for (const Value v : values) bytes += g.type(v).nbytes();
  return static_cast<double>(bytes);
}

// Adds the seconds of a graph's kernels, one after another. `updated`: bytes that are read and written besides values
// between kernels.
double add_work(const Graph& g, const Machine& machine, double updated, Estimate& e) {
  const KeepCosts costs(g);
  const std::vector<double> filled = filled_rows(g);
  double stored = 0, seconds = 0;
  for (int32_t id = 0; id < g.size(); ++id) {
    const Node& n = g.node(id);
    for (int32_t k = 0; k < static_cast<int32_t>(n.outputs.size()); ++k) {
      const ValueCost& v = costs.value({id, k});
      if (!costs.node(id).alias && (v.stored || v.stored_after))
        stored += filled[id] * static_cast<double>(n.outputs[k].nbytes());
    }
    if (n.op == &loop_op) {  // each iteration updates the carries and writes its results
      const Graph& body = *n.attrs.get<Ref<Graph>>("body");
      seconds += static_cast<double>(n.attrs.i("length")) * add_work(body, machine, bytes_of(body, body.outputs), e);
      e.at_most |= n.attrs.i("go_on", -1) >= 0;
      continue;
    }
    if (!n.op->is(kContraction) && !n.op->decompose) continue;
    Cost work = op_cost(g, n);
    if (n.op == &grouped_dot_op) {
      const double share = filled[n.inputs[0].node];
      for (double* part : {&work.flops, &work.products, &work.bytes, &work.written}) *part *= share;
      e.equal_loads = true;
    }
    e.at_most |= work.at_most && n.op != &grouped_dot_op;
    seconds += launch_seconds(machine, work, product_shape(g, n));
  }
  // Values in memory between kernels are written once and read once.
  const double moved = stored + updated;
  return seconds + roofline_seconds(machine, {.bytes = 2 * moved, .written = moved});
}

}  // namespace

double seconds_of(const Mesh& mesh, const PlannedCollective& c, const Machine& machine) {
  return collective_seconds(c.kind, static_cast<double>(c.bytes), mesh, c.axes, machine);
}

Estimate estimate(const Mesh& mesh, const Graph& g, const std::vector<PlannedCollective>& collectives,
                  const Machine& machine, bool memory) {
  Estimate e;
  for (const Ref<Cell>& c : g.cells) e.cell_bytes += c->type.nbytes();
  e.compute_seconds = add_work(g, machine, static_cast<double>(e.cell_bytes), e);
  if (machine.shares_cores) e.compute_seconds *= mesh.size();  // the ranks compute one after another, or share cores
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

Estimate estimate_pipeline(const PipelinePartition& p, const Graph& g, const Machine& machine) {
  Estimate e;
  double busy = 0;
  for (size_t r = 0; r < p.simulation.ranks.size(); ++r) {
    const pipeline::Simulation::RankUse& rank = p.simulation.ranks[r];
    int64_t cells = 0, sums = 0, once = 0;  // once: the batch, and parameters as stages read them
    const GraphPart& before = p.splits[0].ranks[r].before;
    for (size_t o = 0; o < before.out.size(); ++o)
      if (!is_microbatch_sum(g.node(before.out[o]))) once += before.graph->type(before.graph->outputs[o]).nbytes();
    for (size_t c = 0; c < g.cells.size(); ++c)
      if (p.splits[0].cells[r][c]) cells += g.cells[c]->type.nbytes();
    for (const auto& [key, part] : p.splits[0].ranks[r].actions)
      for (size_t i = 0; i < part.in.size(); ++i)
        if (part.adds_to[i] >= 0) sums += g.type(part.in[i]).nbytes();
    const double moved = static_cast<double>(cells + sums);
    // The update reads and writes every cell.
    const double update = p.sharing(machine) * roofline_seconds(machine, {.bytes = 2 * moved, .written = moved});
    e.compute_seconds = std::max(e.compute_seconds, rank.busy + update);
    busy = std::max(busy, rank.busy);
    e.cell_bytes = std::max(e.cell_bytes, cells);
    e.peak_bytes = std::max(e.peak_bytes, cells + sums + once + static_cast<int64_t>(rank.activation));
  }
  for (const Crossing& c : p.crossings)
    for (int64_t bytes : {c.forward_bytes, c.backward_bytes})
      if (p.table.rank_of_stage[c.link.from] != p.table.rank_of_stage[c.link.to])
        e.comm_seconds += static_cast<double>(p.table.microbatches) / p.ranks *
                          collective_seconds(Collective::kSend, static_cast<double>(bytes), 2, 1, machine);
  e.exposed_seconds = p.simulation.makespan - busy;
  for (int32_t id = 0; id < g.size(); ++id)
    if (const Node& n = g.node(id); n.op->is(kContraction) || n.op->decompose) e.at_most |= op_cost(g, n).at_most;
  return e;
}

}  // namespace weft::dist
