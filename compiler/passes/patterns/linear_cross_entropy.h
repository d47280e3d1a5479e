// A linear layer whose large logits only a cross-entropy reads becomes linear_cross_entropy, which never stores all
// logits. Before: a captured graph with pending grad nodes. After: the same bits in f32 without bias. 16-bit layers do
// not round the logits to 16 bits, and the gradient of a bias is summed over chunks of rows (neither if
// facts.eager_bits).
#pragma once
#include "compiler/passes/pass.h"

namespace weft {

/// Logits below this (in f32) stay unless facts.low_memory: they fit the caches, and whole products are faster.
inline constexpr int64_t kLargeLogitsBytes = int64_t{8} << 20;

/// Null if nothing applies. Notes name the logits that are never stored as a whole, and large logits that stay, with
/// the reason.
Ref<Graph> linear_cross_entropy(const Graph& g, PassContext& context);

/// If both ops exist for the same operands and the row weights do not depend on the loss, the loss comes from
/// linear_cross_entropy_grad: one pass over the logits less. Before: a joint graph after cse. After: the same bits.
Ref<Graph> merge_linear_cross_entropy(const Graph& g);

}  // namespace weft
