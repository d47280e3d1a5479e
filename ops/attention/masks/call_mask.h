// The mask of one attention call, for its kernels, made from the mask's graph.
#pragma once
#include <memory>
#include <optional>

#include "framework/base/mutex.h"
#include "ops/attention/masks/block_mask_build.h"

namespace weft::internal {

struct CallSizes {
  int64_t batch = 1, heads = 1, q_len = 0, kv_len = 0;
  friend bool operator==(const CallSizes&, const CallSizes&) = default;
};

/// A mask lowered for tables and lengths, and its list of blocks. Calls share it while graph, lengths and every byte of
/// the tables are the same.
struct CallMask {
  MaskProgram program;  // for these lengths
  BlockLists lists;
  kernels::MaskFill fill;
  kernels::BlockMaskView view;
  /// The number of visible scores of a call of these sizes, by the list of blocks.
  VisibleScores scores(const CallSizes& sizes) const;
  explicit CallMask(MaskProgram p) : program(std::move(p)), fill(program.fill_hook()) {}

 private:
  mutable Mutex mutex_;
  // The count of the list of blocks, set by the first scores().
  mutable std::optional<VisibleScores> counted_ WEFT_GUARDED_BY(mutex_);
};

/// tables: contiguous, and alive as long as the result. lists: whether to make the list of blocks. Throws OutOfRange if
/// the mask reads beyond a table.
std::shared_ptr<const CallMask> mask_of_call(const Ref<Graph>& mask, std::span<const StridedView> tables,
                                             const CallSizes& sizes, bool lists);

}  // namespace weft::internal
