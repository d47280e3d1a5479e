// 64-bit integers of a graph computed in 32 bits where their ranges allow: twice the lanes, and conversions to f32 that
// every instruction set has.
#pragma once
#include <span>

#include "framework/ir/graph.h"
#include "ops/attention/mask_range.h"

namespace weft::internal {

/// The same results, of the same types, for inputs in these ranges (one per input; floats: anything).
Ref<Graph> narrow_indices(const Graph& g, std::span<const MaskRange> inputs);

}  // namespace weft::internal
