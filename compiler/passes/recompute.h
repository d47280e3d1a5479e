// Rematerialisation: decides which forward values are kept for the backward part and which are computed again there.
// Recomputing an op gives the same bits, so this changes only memory and time.
//
// The kept values are a minimum cut between forward and backward (as in Griewank and Walther 2000; PyTorch's
// partitioner, arXiv 2211.03375). To cut a value costs writing, reading and storing it. To put a node on the backward
// side costs running it again (compiler/cost/keep_cost.h).
#pragma once
#include <vector>

#include "framework/ir/graph.h"

namespace weft {

class KeepCosts;

/// The kinds of values that may be recomputed, and the cost of a stored byte.
struct RecomputePolicy {
  double stored_byte = 0.25;  // cost of a byte kept from forward to backward, in bytes moved
  bool expensive = false;     // also reductions, contractions, indexing, sorting and random bits
  /// For `expensive`: values alive at every span-th narrow place of the forward part (one value alive) are kept, so
  /// that only one stretch at a time is recomputed; 0: no such places.
  int32_t span = 0;
  /// Values made in this share of the forward part count by `stored_byte`, later ones by `late_stored_byte`.
  double share = 1;
  double late_stored_byte = 0.25;
  int64_t small = 4096;  // bytes: values of at most this size are kept
};

/// Rising prices of a stored byte, for callers that try several policies. The lowest recomputes only nearly free
/// values, the highest recomputes all values.
inline constexpr double kStoredBytePrices[] = {0.25, 1, 2, 4, 8, 128};

struct RecomputeResult {
  Ref<Graph> graph;            // null: nothing to recompute
  std::vector<bool> again;     // node of the given graph -> backward computes this forward node again
  int64_t kept_bytes = 0;      // bytes of the arena, alive from forward to backward
  int32_t copies = 0;          // nodes computed again
  std::vector<double> narrow;  // the narrow places: the share of the forward part before each
  double seconds = 0;          // estimated cost of keeping and recomputing, to compare policies
  double flops = 0;            // FLOPs of the recomputed nodes
};

/// `costs`: KeepCosts(g, policy.small), for callers that try several policies.
RecomputeResult recompute_by(const Graph& g, const RecomputePolicy& policy);
RecomputeResult recompute_by(const Graph& g, const RecomputePolicy& policy, const KeepCosts& costs);

}  // namespace weft
