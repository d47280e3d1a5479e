#include "distributed/overlap/network.h"

#include <algorithm>

#include "ops/core/collective.h"

namespace weft::dist {

Network::~Network() = default;

const Link& Network::along(const std::string& axes) const {
  const Link* slowest = &link;
  bool named = false;
  for (size_t at = 0; at <= axes.size();) {
    const size_t end = std::min(axes.find(',', at), axes.size());
    // "tp:1" is a part of dimension "tp".
    const std::string name = axes.substr(at, std::min(axes.find(':', at), end) - at);
    if (const auto it = links.find(name);
        it != links.end() && (!named || it->second.bytes_per_second < slowest->bytes_per_second)) {
      slowest = &it->second;
      named = true;
    }
    at = end + 1;
  }
  return *slowest;
}

bool communicates(const Node& n) {
  if (!n.op->is(kCollective) || n.op == &rank_coordinate_op || n.op == &copy_to_op || n.op == &collective_wait_op)
    return false;
  for (const OpDef* begun : {&all_reduce_start_op, &all_gather_start_op, &reduce_scatter_start_op, &all_to_all_start_op,
                             &permute_ranks_start_op})
    if (n.op == begun) return false;
  return true;
}

int64_t collective_bytes(const Graph& g, const Node& n) {
  int64_t bytes = 0;
  for (const TensorType& t : n.outputs) bytes = std::max(bytes, t.nbytes());
  if (n.op != &recv_op && !n.inputs.empty()) bytes = std::max(bytes, g.type(n.inputs[0]).nbytes());
  return bytes;
}

int64_t collective_parts(const Mesh& mesh, const Node& n) {
  if (n.attrs.has("parts")) return n.attrs.i("parts");
  return mesh.parts(mesh.axes(n.attrs.get<std::string>("axes")));
}

double collective_seconds(const Network& net, const Mesh& mesh, const Graph& g, const Node& n) {
  const Link& link = net.along(n.attrs.get<std::string>("axes"));
  const auto p = static_cast<double>(collective_parts(mesh, n));
  const auto bytes = static_cast<double>(collective_bytes(g, n));
  if (n.op == &send_op || n.op == &recv_op || n.op == &permute_ranks_op)
    return link.latency + bytes / link.bytes_per_second;
  if (p <= 1) return 0;
  const double rounds = n.op == &all_reduce_op ? 2 : 1;
  return rounds * ((p - 1) * link.latency + (p - 1) / p * bytes / link.bytes_per_second);
}

double compute_seconds(const Network& net, const Graph& g, const Node& n) {
  if (n.op->view || n.inputs.empty() || n.op->is(kStructural)) return 0;
  SmallVec<TensorType, 4> in;
  for (Value v : n.inputs) in.push_back(g.type(v));
  const Cost cost = op_cost(*n.op, n.attrs, in, n.outputs);
  const Machine& m = net.machine;
  if (n.op->is(kContraction))
    return net.launch + std::max(cost.flops / m.products_of(itemsize(in[0].dtype)), cost.bytes / m.bytes);
  const double traffic = cost.bytes / m.bytes / (n.op->is(kPointwise) ? 3 : 1);
  return (n.op->is(kPointwise) ? 0 : net.launch) + std::max(cost.flops / m.flops, traffic);
}

}  // namespace weft::dist
