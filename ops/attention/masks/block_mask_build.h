// Turns a mask into the lists of blocks that kernels read, without evaluating every point. The analysis decides whole
// rectangles of blocks if it can. Otherwise they are split down to single blocks, which are then computed. So imprecise
// analysis costs time but never changes the result.
#pragma once
#include <vector>

#include "ops/attention/masks/mask_program.h"

namespace weft::internal {

/// Lists of blocks as described by kernels::BlockMaskView. A partial block at the end of a length is kFull if all its
/// points inside the lengths are visible.
struct BlockLists {
  int64_t batch = 1, heads = 1, q_len = 0, kv_len = 0, block_q = 128, block_kv = 128;
  std::vector<int64_t> offsets;
  std::vector<kernels::BlockRange> ranges;
  std::vector<uint64_t> tiles;

  int64_t q_blocks() const { return (q_len + block_q - 1) / block_q; }
  int64_t kv_blocks() const { return (kv_len + block_kv - 1) / block_kv; }
  int64_t tile_words() const { return block_q * block_kv / 64; }
  int64_t bytes() const;
  kernels::BlockMaskView view() const;
};

/// The same lists by columns: for each (batch, head, block of keys) the ranges of blocks of queries, ascending.
struct BlockColumns {
  std::vector<int64_t> offsets;
  std::vector<kernels::BlockRange> ranges;
};
BlockColumns transpose_lists(const BlockLists& lists);

struct BlockBuildOptions {
  int64_t batch = 1, heads = 1, q_len = 0, kv_len = 0, block_q = 128, block_kv = 128;
  int64_t max_tile_bytes = int64_t{32} << 20;  // blocks with further patterns are kUnknown
  bool independent = true;                     // store one batch entry or head if the mask does not depend on it
};
/// `dense` computes single blocks: the program or a narrowed one. The result is the same for any number of threads.
/// Throws OutOfRange if the mask reads beyond a table.
BlockLists build_block_lists(const MaskProgram& program, const MaskProgram& dense, const BlockBuildOptions& options);

/// A set of distinct tiles with a limit in bytes.
class TilePool {
 public:
  TilePool(int64_t tile_words, int64_t max_bytes) : words_(tile_words), max_(max_bytes / (tile_words * 8)) {}
  /// The number of an equal tile, or -1.
  int32_t find(const uint64_t* tile, uint64_t hash) const;
  /// As find(), but adds a missing tile; kUnknown if the pool is full.
  int32_t insert(const uint64_t* tile, uint64_t hash);
  int64_t size() const { return static_cast<int64_t>(tiles.size()) / words_; }
  std::vector<uint64_t> tiles;

 private:
  int64_t words_, max_;
  std::vector<std::pair<uint64_t, int32_t>> slots_;  // open addressing; -1 is free
};

/// Classifies the computed bits of a block of which rows x cols are inside the lengths: kFull, kEmptyBlock or kUnknown
/// (some points).
inline constexpr int32_t kEmptyBlock = -3;
int32_t classify_tile(const uint64_t* tile, int64_t row_words, int64_t rows, int64_t cols);

/// The number of scores that a mask leaves. at_most: it counts all scores of some blocks whose bits are not stored.
struct VisibleScores {
  double count = 0;
  bool at_most = false;
};
VisibleScores visible_scores(const kernels::BlockMaskView& view);

/// The scores that a mask leaves for `batch` x `heads`, which share the keys of `kv_batch` (`batch` or 1) x `kv_heads`.
struct MaskCount {
  double scores = 0;
  double keys = 0;  // rows of keys that a query sees
};
/// `fill` computes the blocks whose bits the list does not store; null if there are none.
MaskCount count_mask(const kernels::BlockMaskView& view, const kernels::MaskFill* fill, int64_t batch, int64_t heads,
                     int64_t kv_batch, int64_t kv_heads);

}  // namespace weft::internal
