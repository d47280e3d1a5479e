// Costs of a graph's collectives over the dimensions of a mesh, for schedules and reports (from
// compiler/cost/collective_seconds.h).
#pragma once
#include <optional>
#include <string>

#include "compiler/cost/collective_seconds.h"
#include "compiler/cost/machine/machine.h"
#include "framework/dispatch/rank/communicator.h"
#include "framework/ir/op_def.h"
#include "framework/mesh/mesh.h"

namespace weft::dist {

using weft::collective_seconds;
/// Seconds of a collective on an idle network, over the ranks of a mesh that `axes` ("tp", "dp,cp") join; `bytes` as
/// collective_bytes().
double collective_seconds(Collective kind, double bytes, const Mesh& mesh, const std::string& axes,
                          const Machine& machine);

/// The number of nodes that a group along `axes` spans. Ranks fill nodes in their order.
int nodes_of(const Mesh& mesh, const std::string& axes, const Machine& machine);

/// One step of a ring of ranks.
struct NetworkLink {
  double latency = 0;
  double bytes_per_second = 0;
};
NetworkLink link_of(const Mesh& mesh, const std::string& axes, const Machine& machine);

/// The collective that a node runs or starts; empty for other nodes and for waits.
std::optional<Collective> collective_of(const Node& n);

/// Whether a node is a blocking collective: neither a start nor a wait.
bool communicates(const Node& n);

/// Bytes of a collective as RankContext counts them: the larger of the first operand and result. An all-to-all counts
/// the smaller one, because the other may have room for rows that do not come.
int64_t collective_bytes(const Graph& g, const Node& n);

/// The number of ranks in a collective.
int64_t collective_parts(const Mesh& mesh, const Node& n);

/// Seconds of a blocking collective.
double communication_seconds(const Machine& machine, const Mesh& mesh, const Graph& g, const Node& n);

/// Seconds that a node computes. Elementwise nodes count as partly fused: a third of their traffic and no launch.
double compute_seconds(const Machine& machine, const Graph& g, const Node& n);

}  // namespace weft::dist
