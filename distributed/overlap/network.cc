#include "distributed/overlap/network.h"

#include <algorithm>
#include <set>

#include "compiler/cost/node_seconds.h"
#include "ops/core/collectives/collective.h"

namespace weft::dist {
namespace {

using NamedCollective = std::pair<const OpDef*, Collective>;

// The row of the collective that a node runs or starts.
const NamedCollective* row_of(const Node& n) {
  if (!n.op->is(kCollective)) return nullptr;
  static constexpr NamedCollective kRows[] = {{&all_reduce_op, Collective::kAllReduce},
                                              {&all_gather_op, Collective::kAllGather},
                                              {&reduce_scatter_op, Collective::kReduceScatter},
                                              {&all_to_all_op, Collective::kAllToAll},
                                              {&all_to_all_rows_op, Collective::kAllToAll},
                                              {&permute_ranks_op, Collective::kPermute},
                                              {&broadcast_ranks_op, Collective::kBroadcast},
                                              {&send_op, Collective::kSend},
                                              {&recv_op, Collective::kRecv}};
  for (const NamedCollective& row : kRows)
    if (n.op == row.first || n.op == start_form(*row.first)) return &row;
  return nullptr;
}

}  // namespace

double collective_seconds(Collective kind, double bytes, const Mesh& mesh, const std::string& axes,
                          const Machine& machine) {
  return collective_seconds(kind, bytes, static_cast<int>(mesh.parts(mesh.axes(axes))), nodes_of(mesh, axes, machine),
                            machine);
}

int nodes_of(const Mesh& mesh, const std::string& axes, const Machine& machine) {
  if (mesh.size() <= machine.links.node) return 1;
  std::set<int> nodes;
  for (int r : mesh.group(0, axes)) nodes.insert(r / machine.links.node);
  return static_cast<int>(nodes.size());
}

NetworkLink link_of(const Mesh& mesh, const std::string& axes, const Machine& machine) {
  const auto ranks = static_cast<int>(mesh.parts(mesh.axes(axes)));
  const int nodes = nodes_of(mesh, axes, machine);
  return {.latency = collective_seconds(Collective::kAllGather, 0, ranks, nodes, machine) / std::max(1, ranks - 1),
          .bytes_per_second = bus_bandwidth(Collective::kAllGather, ranks, nodes, machine)};
}

std::optional<Collective> collective_of(const Node& n) {
  const NamedCollective* row = row_of(n);
  if (!row) return {};
  return row->second;
}

bool communicates(const Node& n) {
  const NamedCollective* row = row_of(n);
  return row && row->first == n.op;
}

int64_t collective_bytes(const Graph& g, const Node& n) {
  const Collective kind = *collective_of(n);
  if (kind == Collective::kSend) return g.type(n.inputs[0]).nbytes();
  if (kind == Collective::kRecv) return n.outputs[0].nbytes();
  const int64_t in = g.type(n.inputs[0]).nbytes(), out = n.outputs[0].nbytes();
  return kind == Collective::kAllToAll ? std::min(in, out) : std::max(in, out);
}

int64_t collective_parts(const Mesh& mesh, const Node& n) {
  if (n.attrs.has("parts")) return n.attrs.i("parts");
  return mesh.parts(mesh.axes(n.attrs.get<std::string>("axes")));
}

double communication_seconds(const Machine& machine, const Mesh& mesh, const Graph& g, const Node& n) {
  return collective_seconds(*collective_of(n), static_cast<double>(collective_bytes(g, n)), mesh,
                            n.attrs.get<std::string>("axes"), machine);
}

double compute_seconds(const Machine& machine, const Graph& g, const Node& n) {
  if (n.op->view || n.inputs.empty() || n.op->is(kStructural)) return 0;
  Cost w = op_cost(g, n);
  if (!n.op->is(kPointwise)) return launch_seconds(machine, w, product_shape(g, n));
  w.bytes /= 3;
  w.written /= 3;
  return roofline_seconds(machine, w);
}

}  // namespace weft::dist
