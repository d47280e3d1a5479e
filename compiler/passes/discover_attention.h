// Attention that a program wrote as matmul, softmax, matmul, found in the captured graph and made one node.
#pragma once
#include "framework/ir/graph.h"

namespace weft {

/// softmax(mod(q k^T)) v, where only this reads the scores and the probabilities, becomes an attention node: what the
/// program does to the scores one by one becomes its score_mod, where(condition, scores, -inf) its mask, dropout of the
/// probabilities its dropout. Sums run in another order then. Notes say what was found and what stays, and why.
Ref<Graph> discover_attention(const Graph& g);

}  // namespace weft
