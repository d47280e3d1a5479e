// Linear layers whose large logits only a cross-entropy reads become linear_cross_entropy, which never holds them
// whole. Before: a captured graph, grad nodes pending. After: the same bits in f32 without bias; 16-bit layers do not
// round the logits to 16 bits, and a bias's gradient is summed over chunks of rows (both not if facts.eager_bits).
#pragma once
#include "framework/ir/graph.h"

namespace weft {

/// Logits below this (in f32) stay unless facts.little_memory: they fit the caches, and whole products are faster.
inline constexpr int64_t kLargeLogitsBytes = int64_t{8} << 20;

/// Null if nothing applies. Notes name the logits that are never whole, and large ones that stay, and why.
Ref<Graph> linear_cross_entropy(const Graph& g);

/// Where both ops are there for the same operands and the rows' weights do not depend on the loss, the loss comes from
/// linear_cross_entropy_grad: one pass over the logits less. Before: a joint graph after cse. After: the same bits.
Ref<Graph> merge_linear_cross_entropy(const Graph& g);

}  // namespace weft
