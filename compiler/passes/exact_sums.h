// --verify_numerics: sums of floats that give the same bits in any order and on any mesh.
#pragma once
#include "framework/ir/graph.h"

namespace weft {

/// Only if pass_facts().exact_sums. Ops that hold sums (attention, linear_cross_entropy, softmax) become the primitives
/// they stand for; then every sum of floats (reduce_sum, dot, grouped_dot, index_add, scatter_add) becomes an
/// order-free sum of ops/core/exact.h and its rounding. Notes what it leaves alone.
Ref<Graph> exact_sums(const Graph& g);

}  // namespace weft
