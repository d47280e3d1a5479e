// Turns data movement that was written as arithmetic back into movement. Reverse mode writes the gradient of slices as
// a sum of padded pieces, of a gather as a scatter into zeros, of a permutation as an accumulation:
//   add(pad(a), pad(b), ...)          ->  concat(a, b, ...)             disjoint pieces along one dim
//   index_select(x, 0 1 2 ...)        ->  slice(x)
//   index_add(0, 0 1 2 ..., x)        ->  pad(x)
//   index_add(0, argsort(p), x)       ->  index_select(x, p)            p = argsort(..) of one dim, or the reverse
//   scatter_add(0, i, x), x one long  ->  where(iota == i, x, 0)        if a gather by i checks its range
// Before: a graph without grad nodes. After: equal values. One difference is possible: a zero of x may keep its sign
// where eager mode adds it to 0 (-0 instead of 0).
#pragma once
#include "framework/ir/graph.h"

namespace weft {

/// Null if nothing applies.
Ref<Graph> rearrange(const Graph& g);

}  // namespace weft
