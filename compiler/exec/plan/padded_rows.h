// Row strides of the matrices in a plan's arena. Products on tensor cores are several times faster if every row of
// their matrices starts at a multiple of TargetLimits::row_alignment. So the rows of such values get padding.
// Arguments, cells, captured tensors and results of the step keep their layout.
#pragma once
#include <map>

#include "framework/dispatch/device/target.h"

namespace weft::internal {

/// The strides of padded launch results of a scheduled graph, by value. They are matrices that 16-bit products (with
/// tf32 also f32 products) write or read, and elementwise results of the same shape that are computed from them. All
/// readers of such a value, directly or through views, accept these strides without a copy.
std::map<Value, Shape> padded_rows(const Graph& g, const TargetLimits& limits, const PrepareOptions& options);

}  // namespace weft::internal
