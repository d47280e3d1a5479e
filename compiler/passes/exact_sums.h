// --verify_numerics: float sums that have the same bits in any order and on any mesh.
#pragma once
#include "compiler/passes/pass.h"

namespace weft {

/// Runs only if facts.exact_sums. Ops that contain sums (attention, linear_cross_entropy, softmax) become their
/// primitives. Then every float sum (reduce_sum, dot, grouped_dot, index_add, scatter_add) becomes an order-independent
/// sum of ops/core/products/exact.h and a rounding. Notes name the ops that stay unchanged.
Ref<Graph> exact_sums(const Graph& g, PassContext& context);

}  // namespace weft
