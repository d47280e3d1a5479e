// Indices of mods outside their tables: detected if they reached a result, and reported with the user's line.
#pragma once
#include <array>

#include "framework/ir/graph.h"
#include "ops/attention/mods/map_mod.h"
#include "ops/kernels/attention/attention.h"

namespace weft::internal {

/// Throws OutOfRange, naming table, index, size, position and line, if one of `reads` is outside its table at a visible
/// point (`seen`: bool, of the scores' shape; undefined: all points). scores: [B, H, Sq, Skv]; `origin` is the position
/// of (0, 0, 0, 0).
void check_reads(const char* what, const Graph& mod, const std::vector<IndexRead>& reads, const Shape& scores,
                 const Tensor& seen, const std::array<int64_t, 4>& origin = {});
/// The same check for a call of the kernels, from its results: an index outside a table made a score NaN, and with it
/// the log-sum-exp of its row. tables: contiguous, of `score`. Checks only rows that are NaN, and at most 64 of them.
void check_score_reads(const Graph& score, std::span<const StridedView> tables, const kernels::Attention& a,
                       const float* log_sum);

}  // namespace weft::internal
