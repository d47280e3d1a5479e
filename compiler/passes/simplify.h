// Simplification: rewrites by rows (rewrite_rule.h), constant folding of up to kFoldElements elements, and numbers in
// place of constants broadcast to full shape.
// Before: any valid graph. After: every output, write and side effect has the same bits (all NaNs are one); after dce
// no more nodes than before, numbers aside; no row applies any more. While grad nodes are pending, what they
// differentiate with respect to and what was recorded under NoGrad is left alone.
#pragma once
#include <map>
#include <string>

#include "framework/ir/graph.h"

namespace weft {

inline constexpr int64_t kFoldElements = 64;

/// Null if nothing applies.
Ref<Graph> simplify(const Graph& g);

/// The same, counting by row (its pattern) how often it applied; "fold" and "number" for what is no row.
Ref<Graph> simplify(const Graph& g, std::map<std::string, int>* applied);

}  // namespace weft
