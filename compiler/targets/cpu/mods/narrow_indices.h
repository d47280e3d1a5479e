// Computes 64-bit integers of a graph in 32 bits if their ranges allow it. This gives twice the lanes, and conversions
// to f32 that every instruction set has.
#pragma once
#include <span>

#include "framework/ir/graph.h"
#include "ops/attention/masks/mask_range.h"

namespace weft::internal {

/// An equivalent graph with results of the same types, for inputs in these ranges (one per input; floats: any value).
Ref<Graph> narrow_indices(const Graph& g, std::span<const MaskRange> inputs);

}  // namespace weft::internal
