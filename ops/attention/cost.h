// The work of attention and of its derivative: planned from types, and counted by the values of masks and block masks.
#pragma once
#include "ops/attention/record.h"
#include "ops/kernels/attention/block_mask.h"

namespace weft::internal {

/// The number of keys of a call: Skv, or the keys in all pages of an entry if keys are paged. `in`: types or views.
int64_t keys_of(const AttentionOperands& at, const auto& in) {
  return in[1].shape[2] * (at.pages >= 0 ? in[static_cast<size_t>(at.pages)].shape[1] : 1);
}

/// The block mask of a call with at.blocks >= 0, whose arrays are `arrays`: offsets, ranges, tiles.
kernels::BlockMaskView block_mask_of(const Attrs& attrs, int64_t q_len, int64_t kv_len, const StridedView* arrays);

/// OpDef::cost of both. A mask without tables counts the scores that it leaves, by its list of blocks. If it reads
/// tables (documents, lengths of a cache, positions of a rank), the number depends on their values: then every score
/// counts, as a bound. So do the scores of blocks whose bits the list does not store.
Cost attention_cost(const Attrs& attrs, std::span<const TensorType> in, std::span<const TensorType> out);

/// OpDef::done of both: each score that the mask leaves, and the rows of keys and values that a query sees. Throws
/// OutOfRange, as the kernel does, if the mask reads beyond a table.
Cost attention_done(const WorkCall& c);

}  // namespace weft::internal
