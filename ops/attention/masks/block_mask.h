// Block masks with PyTorch's names: the blocks of keys that each block of queries sees. They are found by analysing the
// mask instead of evaluating all its points. A BlockMask is a value; copies share their lists, which never change.
#pragma once
#include <array>
#include <memory>
#include <optional>

#include "ops/attention/mods/mod.h"
#include "ops/kernels/attention/block_mask.h"

namespace weft {

namespace internal {
struct BlockColumns;
struct BlockLists;
class MaskProgram;
}  // namespace internal

struct BlockMaskOptions {
  std::array<int64_t, 2> block_size = {128, 128};  // queries, keys: multiples of 64
  int64_t max_tile_bytes = int64_t{32} << 20;      // the kernel computes bits of partial blocks beyond this
};

class BlockMask {
 public:
  using Loc = std::source_location;
  /// No mask: every query sees every key.
  BlockMask() = default;
  bool defined() const { return data_ != nullptr; }
  explicit operator bool() const { return defined(); }

  /// [B, H, Q_LEN, KV_LEN]; B or H is 1 if the mask serves any batch or any number of heads.
  Shape shape(Loc loc = Loc::current()) const;
  /// Number of points: the product of shape().
  int64_t numel(Loc loc = Loc::current()) const { return shape(loc).numel(); }
  std::array<int64_t, 2> block_size(Loc loc = Loc::current()) const;
  int64_t q_blocks(Loc loc = Loc::current()) const;
  int64_t kv_blocks(Loc loc = Loc::current()) const;
  /// Percentage of the points that are in skipped blocks.
  double sparsity(Loc loc = Loc::current()) const;
  /// i32 [B, H, q blocks, kv blocks]: 1 if a block has a visible point, as in PyTorch.
  Tensor to_dense(Loc loc = Loc::current()) const;
  /// The blocks as text: full blocks as U+2588; partial blocks (and, above `grid` rows or columns, squares of mixed
  /// blocks) as U+2591; empty blocks as spaces. Shows the first `limit` heads.
  std::string to_string(int64_t limit = 3, std::array<int64_t, 2> grid = {20, 20}, Loc loc = Loc::current()) const;
  /// Bytes of the lists and of the blocks' bits.
  int64_t bytes(Loc loc = Loc::current()) const;

  /// The mask of one batch entry: B = 1.
  BlockMask at(int64_t b, Loc loc = Loc::current()) const { return one(0, b, loc); }
  /// The mask of one head: B = H = 1.
  BlockMask at(int64_t b, int64_t h, Loc loc = Loc::current()) const { return at(b, loc).one(1, h, loc); }
  /// The mask of one block of queries: Q_LEN is that block's length.
  BlockMask at(int64_t b, int64_t h, int64_t q_block, Loc loc = Loc::current()) const {
    return at(b, h, loc).one(2, q_block, loc);
  }
  /// Entries [begin, end) of the batch (dim 0), of the heads (1), or of the blocks of queries (2). The mask function is
  /// shifted accordingly.
  BlockMask slice(int dim, int64_t begin, int64_t end, Loc loc = Loc::current()) const;
  /// The same mask for other lengths, analysed again; throws, with the reason, if it captures tensors too short for
  /// them.
  BlockMask resize(int64_t q_len, int64_t kv_len, Loc loc = Loc::current()) const;

  /// PyTorch's lists: counts i32 [B, H, q blocks], and indices [B, H, q blocks, kv blocks], ascending, 0 after the
  /// count.
  struct Lists {
    Tensor num_blocks, indices, full_num_blocks, full_indices;
  };
  Lists kv_lists(Loc loc = Loc::current()) const;
  /// The transpose, the blocks of queries for each block of keys: [B, H, kv blocks] and [B, H, kv blocks, q blocks].
  Lists q_lists(Loc loc = Loc::current()) const;

  /// True if made from traced tensors inside a captured function: the lists are made when it runs, and only there.
  bool traced() const;
  /// The mask function: it decides which points are visible, in partial blocks and beyond them.
  const MaskMod& mask() const;
  /// The arrays that kernels read; valid while this or a copy lives.
  kernels::BlockMaskView view() const;
  /// Computes bits that the lists do not have; valid while this or a copy lives.
  kernels::MaskFill fill() const;
  /// view()'s lists by blocks of keys; made at first use.
  const internal::BlockColumns& columns() const;
  /// Throws, naming `op`, the shapes and a correct call, if the mask does not fit this attention call.
  void check_fits(const char* op, int64_t batch, int64_t heads, int64_t q_len, int64_t kv_len) const;

  struct FromBlocks {
    std::array<int64_t, 2> block_size = {128, 128};
    MaskMod mask_mod = {};  // for the partial blocks; none: all their points are visible
    std::optional<std::array<int64_t, 2>> seq_lengths = std::nullopt;  // none: whole blocks
  };
  /// Makes a block mask from lists as kv_lists() returns them; the two lists of full blocks may be undefined. Blocks in
  /// no list are skipped, and mask() agrees.
  static BlockMask from_kv_blocks(const Tensor& kv_num_blocks, const Tensor& kv_indices,
                                  const Tensor& full_kv_num_blocks, const Tensor& full_kv_indices,
                                  const FromBlocks& options, Loc loc = Loc::current());

 private:
  struct MaskData;
  friend BlockMask create_block_mask(const MaskMod&, std::optional<int64_t>, std::optional<int64_t>, int64_t, int64_t,
                                     const BlockMaskOptions&, std::source_location);
  static BlockMask make(const MaskMod& mask, int64_t batch, int64_t heads, int64_t q_len, int64_t kv_len,
                        const BlockMaskOptions& options, bool from_lists);
  BlockMask one(int dim, int64_t i, Loc loc) const { return slice(dim, i, saturating_add(i, 1), loc); }
  const MaskData& data(const char* what) const;
  const MaskData& lists_for(const char* what) const;
  std::shared_ptr<const MaskData> data_;
};

/// Prints "BlockMask(shape=[1, 1, 512, 512], sparsity=37.50%, ..." and its picture.
std::ostream& operator<<(std::ostream& out, const BlockMask& m);

/// The block mask of a mask; B and H of 1 or nullopt serve any. Blocks that the analysis cannot decide are computed, so
/// the result is exact for every mask. Inside a captured function, a mask may read the function's tensors (see
/// traced()). Throws OutOfRange if the mask reads beyond a captured table.
BlockMask create_block_mask(const MaskMod& mask_mod, std::optional<int64_t> B, std::optional<int64_t> H, int64_t Q_LEN,
                            int64_t KV_LEN, const BlockMaskOptions& options = {},
                            std::source_location loc = std::source_location::current());
/// bool [B, H, Q_LEN, KV_LEN]: every point.
Tensor create_mask(const MaskMod& mask_mod, std::optional<int64_t> B, std::optional<int64_t> H, int64_t Q_LEN,
                   int64_t KV_LEN, std::source_location loc = std::source_location::current());

/// A mask in which every point is visible.
Tensor noop_mask(Index b, Index h, Index q, Index kv);
/// The points that are visible in all of the masks.
template <class... M>
MaskMod and_masks(MaskMod first, const M&... more) {
  ((first = first & MaskMod(more)), ...);
  return first;
}
/// The points that are visible in any of the masks.
template <class... M>
MaskMod or_masks(MaskMod first, const M&... more) {
  ((first = first | MaskMod(more)), ...);
  return first;
}

}  // namespace weft
