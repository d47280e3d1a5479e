// Finds attention that a program wrote as matmul, softmax, matmul, and makes it one node.
#pragma once
#include "compiler/passes/pass.h"

namespace weft {

/// softmax(mod(q k^T)) v becomes an attention node if nothing else reads the scores and the probabilities. Elementwise
/// changes of the scores become its score_mod, where(condition, scores, -inf) its mask, and dropout of the
/// probabilities its dropout. Sums then run in another order. Notes name each attention found, and each attention that
/// stays, with the reason.
Ref<Graph> discover_attention(const Graph& g, PassContext& context);

}  // namespace weft
