// What attention's forward and backward share: the sizes of a call, its tiles of queries and of keys, and the keys and
// values packed for products. All of it follows from the shapes and the block mask.
#pragma once
#include <algorithm>
#include <atomic>
#include <vector>

#include "framework/base/function_ref.h"
#include "ops/kernels/attention.h"
#include "ops/kernels/attention_stages.h"
#include "ops/kernels/gemm_kernel.h"

namespace weft::kernels::internal {

/// Between rows of a tile of scores, and of bf16 probabilities: rows that are read together fall into different lines
/// of the nearest cache.
inline constexpr int64_t kScoreLd = kTileKeys + 16, kNarrowLd = kTileKeys + 32;
inline constexpr float kLn2 = 0.693147181f;

inline int64_t ceil_div(int64_t n, int64_t unit) { return (n + unit - 1) / unit; }
inline int64_t up_to(int64_t n, int64_t unit) { return ceil_div(n, unit) * unit; }

/// Extents and the kernels for them; the constructor checks the call.
struct AttentionSizes {
  int64_t batch, heads, q_len, dim, kv_batch, kv_heads, kv_len, v_dim, group;
  int64_t item;  // bytes of an element
  PanelType type;
  /// Queries of a tile: few where masks may leave out some of it, so that less is computed in vain.
  int64_t tile_rows;
  const GemmKernel* g;
  const AttentionStages* stages;
  bool narrow;  // bf16 products: probabilities are not kept in the place of the scores

  explicit AttentionSizes(const Attention& a);
  int64_t padded(int64_t n) const { return up_to(n, g->nr); }
  int64_t deep(int64_t n) const { return up_to(n, g->kr); }
  /// Bytes of a panel over k, and of an operand of `lines` lines over k.
  int64_t panel(int64_t width, int64_t k) const { return deep(k) * width * g->size; }
  int64_t packed_a(int64_t lines, int64_t k) const { return ceil_div(lines, g->mr) * panel(g->mr, k) + 64; }
  int64_t packed_b(int64_t lines, int64_t k) const { return ceil_div(lines, g->nr) * panel(g->nr, k); }
  /// Floats between rows of sums: whole panels, and not a power of two, or a store would hold up loads of other rows
  /// whose addresses end alike.
  int64_t sums_ld(int64_t n) const { return padded(n) + 16; }
  /// Bytes between rows of probabilities.
  int64_t p_line() const { return narrow ? kNarrowLd * 2 : kScoreLd * 4; }
};

/// Pieces of memory one after another, each 64-byte aligned.
class Layout {
 public:
  int64_t take(int64_t bytes) {
    const int64_t here = bytes_;
    bytes_ += up_to(bytes, 64);
    return here;
  }
  int64_t bytes() const { return bytes_; }

 private:
  int64_t bytes_ = 0;
};

/// Rows of one tile: queries q0 to q0 + queries of neighbouring heads that share their keys; heads * queries <=
/// tile_rows.
struct RowBlock {
  int64_t batch, head, heads, q0, queries;
  int64_t rows() const { return heads * queries; }
};

/// Keys kv0 to kv0 + cols (kv0 a multiple of 32) as a tile meets them, and the bits of what it sees (null: all).
struct KeyStep {
  int64_t kv0, cols;
  const uint8_t* bits;
  int64_t row_bytes;
};
/// Calls f for the keys in [begin, end) (multiples of 64, save the end of all keys) that a tile sees some of, in
/// ascending order. `memory` holds a tile's bits for the time of f.
void for_key_steps(const Attention& a, const RowBlock& rows, int64_t begin, int64_t end, uint8_t* memory,
                   FunctionRef<void(const KeyStep&)> f);
/// One step inside one block of a block mask, with that block's `tile`; nothing if no point is visible.
void key_step(const Attention& a, const RowBlock& rows, int64_t kv0, int64_t cols, int32_t tile, uint8_t* memory,
              FunctionRef<void(const KeyStep&)> f);
/// Keys that a tile's ranges cover: its work, and the first and the end of them.
struct Span {
  int64_t begin, end;
};
Span visible_span(const Attention& a, const AttentionSizes& s, const RowBlock& rows);
/// Which chunks of `unit` keys some query of a batch entry and head of k sees, one byte each:
/// [kv_batch, kv_heads, chunks].
std::vector<uint8_t> visible_chunks(const Attention& a, const AttentionSizes& s, int64_t unit);
/// Keys that a tile's ranges cover.
int64_t visible_keys(const Attention& a, const AttentionSizes& s, const RowBlock& rows);
/// Rows of the block mask for (batch, head), and how many.
int64_t mask_row(const BlockMaskView& m, int64_t batch, int64_t head);
/// Whether any point may be masked.
inline bool has_mask(const Attention& a) { return a.mask || a.blocks; }

/// The address of element [i, j, k, 0].
inline char* at(const StridedView& v, int64_t i, int64_t j, int64_t k) {
  return static_cast<char*>(v.data) +
         ((v.shape[0] == 1 ? 0 : i) * v.strides[0] + j * v.strides[1] + k * v.strides[2]) * itemsize(v.dtype);
}
/// Keys from `first` on that lie one behind the other: index 0 and 2 of the first in k and v, and how many of `count`.
struct KeyRun {
  int64_t entry, row, count;
};
KeyRun key_run(const Attention& a, int64_t batch, int64_t first, int64_t count);
/// Throws OutOfRange where a key of this step is seen and has no page.
void check_pages(const Attention& a, const RowBlock& rows, const KeyStep& k);
/// Rows of one head of a view.
struct Matrix {
  const void* data;
  PanelType type;
  int64_t rows, columns, row_stride, column_stride;
};
inline Matrix rows_of(const StridedView& v, PanelType type, int64_t i, int64_t j, int64_t first, int64_t count) {
  return {at(v, i, j, first), type, count, v.shape[3], v.strides[2], v.strides[3]};
}
/// A copy in `memory` with zeros in place of what is not finite.
Matrix sanitised(const Matrix& m, void* memory);

/// Hands out tasks 0 to n - 1 to the workers of one parallel_for in order.
void run_tasks(int64_t tasks, int64_t workers, FunctionRef<void(int64_t worker, int64_t task)> f);
/// How many workers have scratch.
int64_t worker_slots(int64_t tasks);

/// Calls f(head, first, count) for rows [first, first + count) of a step, few enough for their scores to stay in the
/// nearest cache from one pass to the next, all of one head. `first` is a multiple of 32 where there is one head.
template <class F>
void for_strips(const RowBlock& rows, F f) {
  constexpr int64_t kStrip = 32;
  for (int64_t h = 0; h < rows.heads; ++h)
    for (int64_t q = 0; q < rows.queries; q += kStrip)
      f(rows.head + h, h * rows.queries + q, std::min(kStrip, rows.queries - q));
}
/// What the hook is told of a strip.
inline ScoreTile score_tile(const Attention& a, const RowBlock& rows, const KeyStep& k, int64_t task, int64_t head,
                            int64_t first, int64_t count) {
  return {task,  rows.batch, head,     rows.q0 + first % rows.queries, k.kv0,
          count, k.cols,     kScoreLd, static_cast<float>(a.scale)};
}
/// Dropout of one step.
void keep_points(const Attention& a, const AttentionSizes& s, const RowBlock& rows, const KeyStep& k, uint8_t* keep);

}  // namespace weft::kernels::internal
