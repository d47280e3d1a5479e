// Shared by attention's forward and backward: the sizes of a call, its tiles of queries and of keys, and the keys and
// values packed for products. All of it depends only on the shapes and the block mask.
#pragma once
#include <algorithm>
#include <atomic>
#include <vector>

#include "framework/base/function_ref.h"
#include "ops/kernels/attention/attention.h"
#include "ops/kernels/attention/attention_stages.h"
#include "ops/kernels/products/gemm_kernel.h"

namespace weft::kernels::internal {

/// Elements between rows of a tile of scores, and of bf16 probabilities: rows that are read together fall into
/// different lines of the nearest cache.
inline constexpr int64_t kScoreLd = kTileKeys + 16, kNarrowLd = kTileKeys + 32;

inline int64_t ceil_div(int64_t n, int64_t unit) { return (n + unit - 1) / unit; }
inline int64_t up_to(int64_t n, int64_t unit) { return ceil_div(n, unit) * unit; }

/// Extents, and the kernels for them; the constructor checks the call.
struct AttentionSizes {
  int64_t batch, heads, q_len, dim, kv_batch, kv_heads, kv_len, v_dim, group;
  int64_t item;  // bytes of an element
  PanelType type;
  /// Queries of a tile: few if masks may exclude a part of it, so that less work is wasted.
  int64_t tile_rows;
  const GemmKernel* g;
  const AttentionStages* stages;
  bool narrow;  // bf16 products: probabilities are not stored over the scores

  explicit AttentionSizes(const Attention& a);
  int64_t padded(int64_t n) const { return up_to(n, g->nr); }
  int64_t deep(int64_t n) const { return up_to(n, g->kr); }
  /// Bytes of a panel over k, and of an operand of `lines` lines over k.
  int64_t panel(int64_t width, int64_t k) const { return deep(k) * width * g->size; }
  int64_t packed_a(int64_t lines, int64_t k) const { return ceil_div(lines, g->mr) * panel(g->mr, k) + 64; }
  int64_t packed_b(int64_t lines, int64_t k) const { return ceil_div(lines, g->nr) * panel(g->nr, k); }
  /// Floats between rows of sums: whole panels, but not a power of two. Otherwise a store would delay loads of other
  /// rows whose addresses end alike.
  int64_t sums_ld(int64_t n) const { return padded(n) + 16; }
  /// Bytes between rows of probabilities.
  int64_t p_line() const { return narrow ? kNarrowLd * 2 : kScoreLd * 4; }
};

/// Offsets of consecutive pieces of memory, each 64-byte aligned.
class WorkspaceLayout {
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

/// The rows of one tile: queries q0 to q0 + queries of neighbouring heads that share their keys; heads * queries <=
/// tile_rows.
struct RowBlock {
  int64_t batch, head, heads, q0, queries;
  int64_t rows() const { return heads * queries; }
};

/// Keys kv0 to kv0 + cols (kv0 a multiple of 32) of one step of a tile, and the bits of the visible points (null: all).
struct KeyStep {
  int64_t kv0, cols;
  const uint8_t* bits;
  int64_t row_bytes;
};
/// Calls f for the keys in [begin, end) (multiples of 64, except the end of all keys) of which a tile sees some, in
/// ascending order. `memory` has a tile's bits during f.
void for_key_steps(const Attention& a, const RowBlock& rows, int64_t begin, int64_t end, uint8_t* memory,
                   FunctionRef<void(const KeyStep&)> f);
/// Calls f for one step inside one block of a block mask, with that block's `tile`; not if no point is visible.
void key_step(const Attention& a, const RowBlock& rows, int64_t kv0, int64_t cols, int32_t tile, uint8_t* memory,
              FunctionRef<void(const KeyStep&)> f);
/// A range of keys.
struct KeyRange {
  int64_t begin, end;
};
KeyRange visible_span(const Attention& a, const AttentionSizes& s, const RowBlock& rows);
/// One byte per chunk of `unit` keys, [kv_batch, kv_heads, chunks]: whether some query of the batch entry and head sees
/// it.
std::vector<uint8_t> visible_chunks(const Attention& a, const AttentionSizes& s, int64_t unit);
/// The number of keys that a tile's ranges cover: its work.
int64_t visible_keys(const Attention& a, const AttentionSizes& s, const RowBlock& rows);
/// The first row of the block mask for (batch, head).
int64_t mask_row(const BlockMaskView& m, int64_t batch, int64_t head);
/// True if any point may be masked.
inline bool has_mask(const Attention& a) { return a.mask || a.blocks; }

/// The address of element [i, j, k, 0].
inline char* at(const StridedView& v, int64_t i, int64_t j, int64_t k) {
  return static_cast<char*>(v.data) +
         ((v.shape[0] == 1 ? 0 : i) * v.strides[0] + j * v.strides[1] + k * v.strides[2]) * itemsize(v.dtype);
}
/// Keys from `first` on that are contiguous: index 0 and index 2 of the first one in k and v, and how many of `count`.
struct KeyRun {
  int64_t entry, row, count;
};
KeyRun key_run(const Attention& a, int64_t batch, int64_t first, int64_t count);
/// Throws OutOfRange if a key of this step is visible and has no page.
void check_pages(const Attention& a, const RowBlock& rows, const KeyStep& k);
/// Rows of one head of a view, as a matrix.
struct HeadMatrix {
  const void* data;
  PanelType type;
  int64_t rows, columns, row_stride, column_stride;
};
inline HeadMatrix rows_of(const StridedView& v, PanelType type, int64_t i, int64_t j, int64_t first, int64_t count) {
  return {at(v, i, j, first), type, count, v.shape[3], v.strides[2], v.strides[3]};
}
/// A copy in `memory` with zeros in place of values that are not finite.
HeadMatrix sanitised(const HeadMatrix& m, void* memory);

/// Gives tasks 0 to n - 1, in order, to the workers of one parallel_for.
void run_tasks(int64_t tasks, int64_t workers, FunctionRef<void(int64_t worker, int64_t task)> f);
/// The number of workers with scratch.
int64_t worker_slots(int64_t tasks);

/// Calls f(head, first, count) for strips [first, first + count) of a step's rows, each of one head. A strip is small
/// enough for its scores to stay in the nearest cache between passes. If there is one head, `first` is a multiple of
/// 32.
template <class F>
void for_strips(const RowBlock& rows, F f) {
  constexpr int64_t kStrip = 32;
  for (int64_t h = 0; h < rows.heads; ++h)
    for (int64_t q = 0; q < rows.queries; q += kStrip)
      f(rows.head + h, h * rows.queries + q, std::min(kStrip, rows.queries - q));
}
/// The hook's argument for a strip.
inline ScoreTile score_tile(const Attention& a, const RowBlock& rows, const KeyStep& k, int64_t task, int64_t head,
                            int64_t first, int64_t count) {
  return {task,  rows.batch, head,     rows.q0 + first % rows.queries, k.kv0,
          count, k.cols,     kScoreLd, static_cast<float>(a.scale)};
}
/// Computes the dropout bits of one step.
void keep_points(const Attention& a, const AttentionSizes& s, const RowBlock& rows, const KeyStep& k, uint8_t* keep);

}  // namespace weft::kernels::internal
