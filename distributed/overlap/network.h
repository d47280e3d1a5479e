// What communication and computation are assumed to cost when a schedule is made: never measured, so that every rank
// and every run makes the same schedule.
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

/// The rates of one rank and of what joins it to the others. The default: threads of one process on shared cores.
struct Network {
  Machine machine = kPlannedMachine;
  double launch = 1e-6;                    // seconds that any kernel takes at least
  bool shares_cores = true;                // communication is done by the cores that compute
  Link link = {};                          // of mesh dimensions that `links` does not name
  std::map<std::string, Link> links = {};  // by name of a mesh dimension

  /// Out of line: inlined, it makes g++ 12 warn of an uninitialized map for options with designated initializers.
  ~Network();
  /// The slowest of the links that a collective over these axes ("tp", "dp,cp") takes.
  const Link& along(const std::string& axes) const;
};

/// Whether a node talks to other ranks at once: a blocking collective, neither begun only nor a wait.
bool communicates(const Node& n);

/// Bytes of a collective's operand or result, whichever is larger.
int64_t collective_bytes(const Graph& g, const Node& n);

/// Ranks that a collective joins.
int64_t collective_parts(const Mesh& mesh, const Node& n);

/// Seconds of a blocking collective on an idle network: (p - 1) messages of a ring, or 2 (p - 1) for an all-reduce.
double collective_seconds(const Network& net, const Mesh& mesh, const Graph& g, const Node& n);

/// Seconds that a node computes. Elementwise work is taken as half fused: a third of its traffic counts.
double compute_seconds(const Network& net, const Graph& g, const Node& n);

}  // namespace weft::dist
