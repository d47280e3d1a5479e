// The cost model of communication for schedules. Rates are assumed, never measured, so that every rank and every run
// makes the same schedule.
#pragma once
#include <optional>
#include <string>

#include "compiler/cost/machine.h"
#include "framework/dispatch/communicator.h"
#include "framework/ir/op_def.h"
#include "framework/mesh/mesh.h"

namespace weft::dist {

/// Bytes that cross a rank's link for each byte of the larger of operand and result: all-reduce 2 (n-1) / n;
/// all-gather, reduce-scatter and all-to-all (n-1) / n; others 1 (nccl-tests, PERFORMANCE.md).
double bus_factor(Collective kind, double ranks);
/// A ring: its n-1 steps (twice for an all-reduce), each after `hop` seconds, over links of `bus` bytes per second.
double ring_seconds(Collective kind, double bytes, double ranks, double bus, double hop = 0);
/// A pair of binary trees, each for half of the bytes (Sanders, Speck, Traff 2009): all-reduces of few bytes over many
/// ranks.
double tree_seconds(double bytes, double ranks, double bus, double hop);

/// Bytes per second of a link for large messages, over ranks that are spread evenly over nodes.
double bus_bandwidth(Collective kind, int ranks, int nodes, const Machine& machine);
/// Seconds of a collective on an idle network, the faster of ring and tree; `bytes` as collective_bytes().
double collective_seconds(Collective kind, double bytes, int ranks, int nodes, const Machine& machine);
/// The same over the ranks of a mesh that `axes` ("tp", "dp,cp") join.
double collective_seconds(Collective kind, double bytes, const Mesh& mesh, const std::string& axes,
                          const Machine& machine);

/// The number of nodes that a group along `axes` spans. Ranks fill nodes in their order.
int nodes_of(const Mesh& mesh, const std::string& axes, const Machine& machine);

/// One step of a ring of ranks.
struct Link {
  double latency = 0;
  double bytes_per_second = 0;
};
Link link_of(const Mesh& mesh, const std::string& axes, const Machine& machine);

/// The collective that a node runs or starts; empty for other nodes and for waits.
std::optional<Collective> collective_of(const Node& n);

/// Whether a node is a blocking collective: neither a start nor a wait.
bool communicates(const Node& n);

/// Bytes of a collective as RankContext counts them: of the first operand or result, whichever is larger. Of an
/// all-to-all the smaller one, because the other may have room for rows that do not come.
int64_t collective_bytes(const Graph& g, const Node& n);

/// The number of ranks in a collective.
int64_t collective_parts(const Mesh& mesh, const Node& n);

/// Seconds of a blocking collective.
double communication_seconds(const Machine& machine, const Mesh& mesh, const Graph& g, const Node& n);

/// Seconds that a node computes. Elementwise nodes count as half fused: a third of their traffic and no launch.
double compute_seconds(const Machine& machine, const Graph& g, const Node& n);

}  // namespace weft::dist
