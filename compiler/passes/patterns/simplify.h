// Simplification: rewrite rows (rewrite_rule.h), constant folding of up to kFoldElements elements, and scalars in place
// of constants that are broadcast to full shape.
// Before: any valid graph. After: every output, write and side effect has the same bits (all NaNs are equal). After dce
// there are no more nodes than before, except scalars; no row applies any more. While grad nodes are pending, nodes
// with respect to which they differentiate and nodes recorded under NoGrad do not change.
#pragma once
#include <map>
#include <string>

#include "framework/ir/graph.h"

namespace weft {

inline constexpr int64_t kFoldElements = 64;

/// Null if nothing applies.
Ref<Graph> simplify(const Graph& g);

/// Also counts, by row (its pattern), how often it applied. "fold" and "number" count the other two rewrites.
Ref<Graph> simplify(const Graph& g, std::map<std::string, int>* applied);

}  // namespace weft
