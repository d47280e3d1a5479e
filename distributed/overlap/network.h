// The cost model of communication for schedules. Rates are assumed, never measured, so that every rank and every run
// makes the same schedule.
#pragma once
#include <map>
#include <string>

#include "compiler/cost/machine.h"
#include "framework/ir/op_def.h"
#include "framework/mesh/mesh.h"

namespace weft::dist {

/// One link of a ring of ranks.
struct Link {
  double latency = 20e-6;  // seconds for each message
  double bytes_per_second = 5e9;
};

/// The rates of one rank and of its links to other ranks. Default: ranks are threads of one process on shared cores.
struct Network {
  Machine machine = kPlannedMachine;
  double launch = 1e-6;                    // least seconds of a kernel
  bool shares_cores = true;                // the cores that compute also communicate
  Link link = {};                          // for mesh dimensions that `links` does not name
  std::map<std::string, Link> links = {};  // by name of a mesh dimension

  /// Out of line: inlined, it makes g++ 12 warn of an uninitialized map for options with designated initializers.
  ~Network();
  /// The slowest link used by a collective over these axes ("tp", "dp,cp").
  const Link& along(const std::string& axes) const;
};

/// True for a blocking collective, which is neither a start nor a wait.
bool communicates(const Node& n);

/// The larger of a collective's operand and result, in bytes.
int64_t collective_bytes(const Graph& g, const Node& n);

/// The number of ranks in a collective.
int64_t collective_parts(const Mesh& mesh, const Node& n);

/// Seconds of a blocking collective on an idle network: p - 1 messages of a ring, 2 (p - 1) for an all-reduce.
double collective_seconds(const Network& net, const Mesh& mesh, const Graph& g, const Node& n);

/// Seconds of a node's computation. Only a third of an elementwise node's traffic counts, because fusion removes most.
double compute_seconds(const Network& net, const Graph& g, const Node& n);

}  // namespace weft::dist
