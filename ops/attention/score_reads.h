// Indices of mods outside their tables: found where they reached a result, and told with the user's line.
#pragma once
#include <array>

#include "framework/ir/graph.h"
#include "ops/attention/map_mod.h"
#include "ops/kernels/attention.h"

namespace weft::internal {

/// Throws OutOfRange, naming table, index, size, place and line, if one of `reads` lies outside its table at a point
/// that `seen` (bool, of the scores' shape; undefined: all) lets pass. scores: [B, H, Sq, Skv], of which (0, 0, 0, 0)
/// stands at `origin`.
void check_reads(const char* what, const Graph& mod, const std::vector<IndexRead>& reads, const Shape& scores,
                 const Tensor& seen, const std::array<int64_t, 4>& origin = {});
/// The same of a call of the kernels, from what it wrote: an index outside a table made a score NaN, and with it the
/// log-sum-exp of its row. tables: contiguous, of `score`. Looks closer only at rows that are NaN, and at 64 of them
/// where there are more.
void check_score_reads(const Graph& score, std::span<const StridedView> tables, const kernels::Attention& a,
                       const float* lse);

}  // namespace weft::internal
