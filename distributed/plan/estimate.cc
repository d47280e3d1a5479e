#include "distributed/plan/estimate.h"

#include <algorithm>
#include <set>

#include "compiler/cost/keep_cost.h"
#include "compiler/cost/peak_estimate.h"
#include "ops/core/core.h"

namespace weft::dist {

int nodes_of(const Mesh& mesh, const std::string& axes, const MachinePreset& machine) {
  std::set<int> nodes;
  for (int r : mesh.group(0, axes)) nodes.insert(r / machine.node);
  return static_cast<int>(nodes.size());
}

double seconds_of(const Mesh& mesh, const PlannedCollective& c, const MachinePreset& machine) {
  const auto ranks = static_cast<int>(mesh.parts(mesh.axes(c.axes)));
  return collective_seconds(c.kind, static_cast<double>(c.bytes), ranks, nodes_of(mesh, c.axes, machine), machine);
}

Network network_of(const Mesh& mesh, const MachinePreset& machine) {
  Network net;
  net.machine = {.bytes = machine.memory_bandwidth * machine.reached,
                 .flops = machine.flops32 * machine.reached / 8,  // outside of matrix units
                 .products = machine.flops32 * machine.reached,
                 .products16 = machine.flops16 * machine.reached};
  net.launch = machine.launch;
  net.shares_cores = machine.name == "cpu";
  for (const Mesh::Dim& d : mesh.dims()) {
    if (d.size <= 1) continue;
    const int nodes = nodes_of(mesh, d.name, machine);
    const double whole = collective_seconds(Collective::kAllGather, 0, d.size, nodes, machine);
    net.links[d.name] = {.latency = whole / (d.size - 1),
                         .bytes_per_second = bus_bandwidth(Collective::kAllGather, d.size, nodes, machine)};
    // What no dimension's name says goes over the slowest.
    if (net.links[d.name].bytes_per_second < net.link.bytes_per_second || net.links.size() == 1)
      net.link = net.links[d.name];
  }
  return net;
}

Estimate estimate(const Mesh& mesh, const Graph& g, const std::vector<PlannedCollective>& collectives,
                  const MachinePreset& machine, bool memory) {
  Estimate e;
  const KeepCosts costs(g);
  const double rate = machine.memory_bandwidth * machine.reached;
  double stored = 0;
  std::vector<TensorType> in;
  for (int32_t id = 0; id < g.size(); ++id) {
    const Node& n = g.node(id);
    for (int32_t k = 0; k < static_cast<int32_t>(n.outputs.size()); ++k) {
      const ValueCost& v = costs.value({id, k});
      if (!costs.node(id).alias && (v.stored || v.stored_after))
        stored += static_cast<double>(n.outputs[static_cast<size_t>(k)].nbytes());
    }
    if (!n.op->is(kContraction) && !n.op->decompose) continue;
    in.clear();
    for (Value v : n.inputs) in.push_back(g.type(v));
    const Cost c = op_cost(*n.op, n.attrs, in, {n.outputs.data(), n.outputs.size()});
    e.products += c.flops;
    e.compute_seconds +=
        std::max({machine.launch, c.flops / (machine.flops(in[0].dtype) * machine.reached), c.bytes / rate});
  }
  // What lies in memory between kernels is written once and read once; the update reads and writes every cell.
  for (const Ref<Cell>& c : g.cells) e.cell_bytes += c->type.nbytes();
  e.compute_seconds += 2 * (stored + static_cast<double>(e.cell_bytes)) / rate;
  std::vector<std::pair<std::string, int>> known;
  for (const PlannedCollective& c : collectives) {
    auto it = std::find_if(known.begin(), known.end(), [&](const auto& k) { return k.first == c.axes; });
    if (it == known.end()) it = known.insert(known.end(), {c.axes, nodes_of(mesh, c.axes, machine)});
    const auto ranks = static_cast<int>(mesh.parts(mesh.axes(c.axes)));
    const double s = collective_seconds(c.kind, static_cast<double>(c.bytes), ranks, it->second, machine);
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
