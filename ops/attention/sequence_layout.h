// The positions of a sequence that each of c ranks owns, so that causal attention is equal work on all ranks. A layout
// is a permutation of positions: rank 0's, then rank 1's, ..., an equal number each, ascending within a rank. It is
// data, made by ordinary ops, eagerly or in a captured step.
#pragma once
#include "framework/tensor/tensor.h"

namespace weft {

/// i64 [S] for packed documents. document_ids: integers [S] or [rows, S], equal within a document, whose tokens are
/// contiguous. Each document is split into 2c chunks; rank i owns chunks i and 2c - 1 - i. The first tokens of a
/// document that do not fill 2c chunks (fewer than 2c, the cheapest) are assigned to the ranks in turn, forward and
/// backward. If there are several rows, the segments in which no row begins a document are split this way. This is
/// equally balanced: along each segment, the work of every row grows linearly. Throws unless c divides S.
Tensor document_layout(const Tensor& document_ids, int64_t ranks);

}  // namespace weft
