// Bucketing: merges small independent collectives of one kind over the same ranks into one. The order of the sum over
// ranks does not change, so results keep their bits.
#pragma once
#include <cstdint>
#include <vector>

#include "distributed/overlap/network.h"

namespace weft::dist {

struct BucketOptions {
  int64_t bytes = 0;  // limit of a bucket; 0: the bytes that a link carries in eight times its latency
  int64_t member_bytes =
      0;  // larger collectives are not bucketed; 0: the bytes that are packed and unpacked in one latency
};

/// Each bucket is a list of two or more nodes.
using Buckets = std::vector<std::vector<int32_t>>;

/// Deterministic. Members of a bucket have even shards, and all are ready before any of them is used.
Buckets choose_buckets(const Graph& g, const Mesh& mesh, const Machine& machine, const BucketOptions& options = {});

/// The graph with one collective for each bucket, which gets the site of the bucket's first member; null without
/// buckets.
Ref<Graph> apply_buckets(const Graph& g, const Buckets& buckets);

}  // namespace weft::dist
