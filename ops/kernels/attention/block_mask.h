// The keys that each block of queries may see, in blocks: ranges of whole blocks, and blocks in which only some points
// are visible. Empty blocks are not listed. A block mask makes attention faster and never changes the result: the mask
// alone defines it.
#pragma once
#include <cstdint>

namespace weft::kernels {

/// Blocks [first, last) of keys. tile: kFull, kUnknown, or the index of the bits of each of these blocks.
struct BlockRange {
  static constexpr int32_t kFull = -1, kUnknown = -2;
  int32_t first, last, tile;
};

/// A block mask's arrays; all of them must live until the call that reads them returns.
struct BlockMaskView {
  int64_t batch = 1, heads = 1;           // each 1 (the same for all) or attention's own
  int64_t q_len = 0, kv_len = 0;          // points; the last block of either may be partial
  int64_t block_q = 128, block_kv = 128;  // multiples of 64 of the points
  /// Rows are (batch, head, block of queries), row-major. Row r has the entries offsets[r] to offsets[r + 1], with
  /// ascending, disjoint keys.
  const int64_t* offsets = nullptr;
  const BlockRange* ranges = nullptr;
  /// Tile t: block_q rows of block_kv bits, least bit first, row-major, starting at tiles + t * block_q * block_kv / 8;
  /// points beyond q_len or kv_len are 0.
  const uint8_t* tiles = nullptr;

  int64_t q_blocks() const { return (q_len + block_q - 1) / block_q; }
  int64_t kv_blocks() const { return (kv_len + block_kv - 1) / block_kv; }
};

/// Computes a tile's bits if the block mask does not have them (kUnknown), or if there is no block mask.
struct MaskFill {
  /// Writes rows [q0, q0 + rows) x keys [kv0, kv0 + cols) of (batch, head). `bits` has a row every `row_bytes` bytes,
  /// least bit first; bits beyond cols are 0. Called from pool tasks; must be pure.
  void (*run)(const void* context, int64_t batch, int64_t head, int64_t q0, int64_t kv0, int64_t rows, int64_t cols,
              uint8_t* bits, int64_t row_bytes);
  const void* context;
};

}  // namespace weft::kernels
