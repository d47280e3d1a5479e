// Bucketing joins small collectives of one kind over the same ranks that do not depend on one another. Values and the
// order in which ranks are summed stay the same, bit for bit.
#pragma once
#include <cstdint>
#include <vector>

#include "distributed/overlap/network.h"

namespace weft::dist {

struct BucketOptions {
  int64_t bytes = 0;         // limit of one bucket; 0: what a link carries in eight times its latency
  int64_t member_bytes = 0;  // larger collectives stay alone; 0: what is packed and unpacked within one latency
};

/// Each a list of nodes, by first use (gathers) or production (reductions); two or more in each.
using Buckets = std::vector<std::vector<int32_t>>;

/// Deterministic. Only even shards; only nodes that are all ready before any of them is used.
Buckets choose_buckets(const Graph& g, const Mesh& mesh, const Machine& machine, const BucketOptions& options = {});

/// The graph with each bucket as one collective (at the site of its first member), or null if there is none.
Ref<Graph> apply_buckets(const Graph& g, const Buckets& buckets);

}  // namespace weft::dist
