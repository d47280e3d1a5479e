// Block masks with PyTorch's names: which blocks of keys each block of queries sees, found by analysis of the mask
// instead of evaluation of all its points. A BlockMask is a value; copies share their lists, which never change.
#pragma once
#include <array>
#include <memory>
#include <optional>

#include "ops/attention/mod.h"
#include "ops/kernels/block_mask.h"

namespace weft {

namespace internal {
struct BlockColumns;
struct BlockLists;
class MaskProgram;
}  // namespace internal

struct BlockMaskOptions {
  std::array<int64_t, 2> block_size = {128, 128};  // queries, keys: multiples of 64
  int64_t max_tile_bytes = int64_t{32} << 20;      // bits of partial blocks beyond this are computed in the kernel
};

class BlockMask {
 public:
  /// No mask at all: every query sees every key.
  BlockMask() = default;
  bool defined() const { return data_ != nullptr; }
  explicit operator bool() const { return defined(); }

  /// [B, H, Q_LEN, KV_LEN]; B and H are 1 where the mask serves any batch or number of heads.
  Shape shape() const;
  /// Points of shape().
  int64_t numel() const { return shape().numel(); }
  std::array<int64_t, 2> block_size() const;
  int64_t q_blocks() const;
  int64_t kv_blocks() const;
  /// Percent of the points that lie in blocks which are skipped.
  double sparsity() const;
  /// i32 [B, H, q blocks, kv blocks]: 1 where a block has a point that counts, as in PyTorch.
  Tensor to_dense() const;
  /// The blocks as text, full ones as U+2588, partial ones (and squares of mixed blocks, above `grid` rows or columns)
  /// as U+2591, empty ones blank; the first `limit` heads.
  std::string to_string(int64_t limit = 3, std::array<int64_t, 2> grid = {20, 20}) const;
  /// Bytes held by lists and bits of blocks.
  int64_t bytes() const;

  /// The mask of one batch entry: B = 1.
  BlockMask at(int64_t b) const { return slice(0, b, b + 1); }
  /// Of one head: B = H = 1.
  BlockMask at(int64_t b, int64_t h) const { return at(b).slice(1, h, h + 1); }
  /// Of one block of queries: Q_LEN is that block's.
  BlockMask at(int64_t b, int64_t h, int64_t q_block) const { return at(b, h).slice(2, q_block, q_block + 1); }
  /// Entries [begin, end) of the batch (dim 0) or the heads (1), or blocks of queries (2). The mask goes along,
  /// shifted.
  BlockMask slice(int dim, int64_t begin, int64_t end) const;
  /// The same mask for other lengths, analysed anew; throws with the reason if it captures tensors too short for them.
  BlockMask resize(int64_t q_len, int64_t kv_len) const;

  /// PyTorch's lists: i32 [B, H, q blocks] counts and [B, H, q blocks, kv blocks] indices, ascending, 0 behind the
  /// count.
  struct Lists {
    Tensor num_blocks, indices, full_num_blocks, full_indices;
  };
  Lists kv_lists() const;
  /// The transpose, for each block of keys the blocks of queries: [B, H, kv blocks] and [B, H, kv blocks, q blocks].
  Lists q_lists() const;

  /// Made inside a captured function, of its tensors: the lists are made when it runs, and only there.
  bool traced() const;
  /// What says which points count; in partial blocks and beyond them.
  const MaskMod& mask() const;
  /// The arrays that kernels read; valid as long as this or a copy.
  kernels::BlockMaskView view() const;
  /// Computes bits where the lists do not hold them; valid as long as this or a copy.
  kernels::MaskFill fill() const;
  /// view()'s lists by blocks of keys, made at first use.
  const internal::BlockColumns& columns() const;
  /// Throws, naming `op`, the shapes and a correct call, unless the mask fits this attention.
  void check_fits(const char* op, int64_t batch, int64_t heads, int64_t q_len, int64_t kv_len) const;

  struct FromBlocks {
    std::array<int64_t, 2> block_size = {128, 128};
    MaskMod mask_mod = {};  // of the partial blocks; none: all their points count
    std::optional<std::array<int64_t, 2>> seq_lengths = std::nullopt;  // none: whole blocks
  };
  /// From lists as kv_lists() gives them; the two of full blocks may be undefined. Blocks in no list are skipped, and
  /// mask() says the same.
  static BlockMask from_kv_blocks(const Tensor& kv_num_blocks, const Tensor& kv_indices,
                                  const Tensor& full_kv_num_blocks, const Tensor& full_kv_indices,
                                  const FromBlocks& options);

 private:
  struct Data;
  friend BlockMask create_block_mask(const MaskMod&, std::optional<int64_t>, std::optional<int64_t>, int64_t, int64_t,
                                     const BlockMaskOptions&);
  static BlockMask make(const MaskMod& mask, int64_t batch, int64_t heads, int64_t q_len, int64_t kv_len,
                        const BlockMaskOptions& options, bool from_lists);
  const Data& data(const char* what) const;
  const Data& lists_for(const char* what) const;
  std::shared_ptr<const Data> data_;
};

/// "BlockMask(shape=[1, 1, 512, 512], sparsity=37.50%, ..." and its picture.
std::ostream& operator<<(std::ostream& out, const BlockMask& m);

/// The block mask of a mask; B and H of 1 or nullopt serve any. Blocks that analysis cannot settle are computed, so the
/// result is exact for every mask. Inside a captured function a mask may read its tensors (see traced()). Throws
/// OutOfRange where the mask reads beyond a captured table.
BlockMask create_block_mask(const MaskMod& mask_mod, std::optional<int64_t> B, std::optional<int64_t> H, int64_t Q_LEN,
                            int64_t KV_LEN, const BlockMaskOptions& options = {});
/// bool [B, H, Q_LEN, KV_LEN], every point.
Tensor create_mask(const MaskMod& mask_mod, std::optional<int64_t> B, std::optional<int64_t> H, int64_t Q_LEN,
                   int64_t KV_LEN);

/// A mask that every point passes.
Tensor noop_mask(Index b, Index h, Index q, Index kv);
/// What all of the masks let pass.
template <class... M>
MaskMod and_masks(MaskMod first, const M&... more) {
  ((first = first & MaskMod(more)), ...);
  return first;
}
/// What any of the masks lets pass.
template <class... M>
MaskMod or_masks(MaskMod first, const M&... more) {
  ((first = first | MaskMod(more)), ...);
  return first;
}

}  // namespace weft
