#include "compiler/cost/collective_seconds.h"

#include <algorithm>
#include <cmath>

namespace weft {
namespace {

// Between two points, bus bandwidth and latency are interpolated linearly. Beyond them, the bandwidth stays at the
// nearest point's value, and the latency is extrapolated.
LinkPoint at(const std::vector<LinkPoint>& points, int size, Collective kind, double ranks_each) {
  auto bus = [&](const LinkPoint& p) { return p.bandwidth * bus_factor(kind, p.size * ranks_each); };
  size_t i = 0;
  while (i + 2 < points.size() && points[i + 1].size < size) ++i;
  const LinkPoint &a = points[i], &b = points[i + 1];
  const double x = static_cast<double>(size - a.size) / (b.size - a.size);
  const double inside = std::clamp(x, 0.0, 1.0);
  return {size, std::max(a.latency / 2, a.latency + x * (b.latency - a.latency)), bus(a) + inside * (bus(b) - bus(a))};
}

struct Reach {
  double latency, bus;
};

// A ring over `ranks` ranks on `nodes` nodes. The ranks of a node share its network.
Reach reach(Collective kind, int ranks, int nodes, const Links& links) {
  const bool reduce = kind == Collective::kAllReduce,
             ring = reduce || kind == Collective::kAllGather || kind == Collective::kReduceScatter;
  const double steps = (ranks - 1) * (reduce ? 2.0 : 1.0);
  if (nodes <= 1) {
    if (kind == Collective::kAllToAll && links.inner_all_to_all > 0)
      return {links.inner_all_to_all_latency, links.inner_all_to_all * bus_factor(kind, ranks)};
    const auto& points = reduce ? links.inner_reduce : links.inner_gather;
    if (points.empty() || !ring) return {(ring ? steps : 1) * links.inner_hop, links.inner_bus};
    const LinkPoint p = at(points, ranks, kind, 1);
    return {p.latency, p.bandwidth};
  }
  const double each = std::max(1.0, static_cast<double>(ranks) / nodes);
  if (kind == Collective::kAllToAll) {
    // Bytes that leave the node go through each rank's own port.
    const double efficiency = 1 - 0.44 / nodes,
                 outside = (ranks - each) / std::max(1.0, static_cast<double>(ranks - 1));
    const double latency = links.outer_all_to_all.empty()
                               ? links.outer_hop * std::log2(nodes) + links.inner_all_to_all_latency
                               : at(links.outer_all_to_all, nodes, kind, 1).latency;
    return {latency, links.outer_bus * efficiency * links.ramp / std::max(outside, 1e-9)};
  }
  if (!ring) return {links.outer_hop, links.outer_bus};
  const auto& points = reduce ? links.outer_reduce : links.outer_gather;
  // If each node has one rank, gathers and scatters run in steps of doubling distance (NCCL's PAT, since 2.23).
  const double hops = each <= 1 ? std::ceil(std::log2(ranks)) * (reduce ? 2 : 1) : steps;
  if (points.empty()) {
    const double ports = links.outer_bus * each * links.ramp;  // a ring also passes the links inside each node
    return {hops * links.outer_hop,
            each > 1 ? std::min(ports, reach(kind, static_cast<int>(each), 1, links).bus) : ports};
  }
  const LinkPoint p = at(points, nodes, kind, links.node);
  // The points have all devices of a node in the ring. A ring with `each` devices has fewer steps, and each / node of
  // the ports.
  return {each >= links.node ? p.latency : hops * links.outer_hop, p.bandwidth * each / links.node * links.ramp};
}

}  // namespace

double bus_factor(Collective kind, double n) {
  switch (kind) {
    case Collective::kAllReduce:
      return 2 * (n - 1) / n;
    case Collective::kAllGather:
    case Collective::kReduceScatter:
    case Collective::kAllToAll:
      return (n - 1) / n;
    case Collective::kBarrier:
      return 0;
    default:
      return 1;
  }
}

double tree_seconds(double bytes, double ranks, double bus, double hop) {
  return 2 * bytes / bus + 2 * std::ceil(std::log2(std::max(1.0, ranks))) * hop;
}

double bus_bandwidth(Collective kind, int ranks, int nodes, const Machine& machine) {
  return reach(kind, ranks, nodes, machine.links).bus;
}

double collective_seconds(Collective kind, double bytes, int ranks, int nodes, const Machine& machine) {
  if (ranks <= 1) return 0;
  const Links& links = machine.links;
  const Reach r = reach(kind, ranks, nodes, links);
  const double ring = r.latency + bytes * bus_factor(kind, ranks) / r.bus;
  if (kind != Collective::kAllReduce) return ring;
  return std::min(ring, tree_seconds(bytes, ranks, r.bus, nodes > 1 ? links.outer_hop : links.inner_hop));
}

}  // namespace weft
