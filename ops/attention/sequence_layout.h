// Which positions of a sequence each of c ranks owns, so that causal attention is as much work on one as on another. A
// layout is a permutation of positions: rank 0's, then rank 1's, ..., equally many each, ascending within a rank. It is
// data: made of ordinary ops, eagerly or in a captured step.
#pragma once
#include <vector>

#include "framework/tensor/tensor.h"

namespace weft {

/// i64 [length]: the sequence in 2c chunks, rank i owns chunks i and 2c - 1 - i. Throws unless 2c divides the length.
Tensor head_tail_layout(int64_t length, int64_t ranks);

/// i64 [S] for documents packed in a row (ids, integers [S] or [rows, S], equal within a document, whose tokens lie
/// together): each document is cut like head_tail_layout; the first tokens of a document that do not fill 2c chunks
/// (fewer than 2c, the cheapest) are dealt out to all ranks in turn, forth and back. Of several rows the stretches
/// within which no row begins a document are cut so, which is as even: along each the work of every row grows
/// linearly. Throws unless c divides S.
Tensor document_layout(const Tensor& document_ids, int64_t ranks);

/// Pairs of a query and a key that each rank's queries see: keys of their own document at or before them. layout: as
/// made above (undefined: in order); document_ids undefined: one document.
std::vector<int64_t> causal_pairs(int64_t length, int64_t ranks, const Tensor& layout = {},
                                  const Tensor& document_ids = {});

}  // namespace weft
