// The stages of attention between its products, once for each instruction set (attention_isa.cc): the softmax of a tile
// and its gradient. Rows are queries, columns are keys. Keep this small: the per-instruction-set sources include it.
#pragma once
#include <cstdint>

#include "ops/kernels/products/gemm_kernel.h"

namespace weft::kernels {

/// Maximum number of keys of a tile.
inline constexpr int64_t kTileKeys = 128;
/// Floats that store the sum of one row: one per lane.
inline constexpr int64_t kSumLanes = 16;
inline constexpr float kLog2E = 1.44269504f;

/// A tile of scores for the softmax stage. Its rows and the rows of `p` have room for whole groups of 32 columns.
struct SoftmaxTile {
  float* scores;
  int64_t ld, rows, cols;
  const uint8_t* bits;  // visible points, a row every row_bytes bytes; null: all
  int64_t row_bytes;
  const uint8_t* keep;  // points that dropout keeps, rows of kTileKeys bits; null: no dropout
  float keep_scale;
  float scale;  // above 0: exponents to the base 2 are scale * (scores - base)
  /// Per row, carried from tile to tile: the base of the scores (-inf at first; it follows the largest score, and
  /// exponents reach 8 before it does, so that it seldom changes), the sum in kSumLanes lanes, and the largest score
  /// (or null). The base is subtracted first: the difference of equal scores is 0, however large they are.
  float *base, *sum, *top;
  /// Sums of p v so far, rescaled when a base changes; null: none yet.
  float* out;
  int64_t out_ld, out_cols;
  /// exp2(scale * (scores - base)); 0 where masked, dropped or beyond cols. In the stages' type. May be `scores`.
  void* p;
  int64_t p_ld;
};

/// A tile of rows whose sums are complete.
struct FinishTile {
  int64_t rows, cols;
  const float* out;
  int64_t out_ld;
  const float *base, *sum, *top;
  float scale;  // as in SoftmaxTile
  void* to;     // rows to_ld elements apart
  int64_t to_ld;
  PanelType to_type;
  float *log_sum, *max;  // per row, or null: the logarithm of the sum of exp(score - max), and top
};

/// A tile of scores and of the products dout v^T, for the stage that computes the gradient of the scores.
struct GradTile {
  const float* scores;
  float* grad;
  int64_t ld, rows, cols;
  const uint8_t* bits;
  int64_t row_bytes;
  const uint8_t* keep;
  float keep_scale, scale;
  const float *max, *log_sum, *delta;  // per row; log_sum to the base 2
  float* raw;  // before the hook; set to 0 where masked, so that masked values reach no gradient
  /// The probabilities (after dropout) and the gradients, in the stages' type, packed as operand b of a product over
  /// the rows; the rows are padded with zeros to whole steps of it. `d`: the gradients in rows.
  void *p_panels, *d_panels;
  int64_t panel_stride;  // bytes
  void* d;
  int64_t d_ld;
};

/// Dropout bits from the words of random_bits at flat positions first, first + 1, ...
struct KeepRow {
  uint64_t seed;
  uint32_t step, op_id;
  uint64_t first;
  int64_t cols;
  uint32_t threshold;  // bound for the upper 24 bits: kept if not below
  uint8_t* bits;       // kTileKeys bits
};

/// A few rows times keys or values in place; the elements of a row are contiguous.
struct RowProduct {
  const void* x;  // rows, x_ld elements apart: of the operands' type (scores) or the stages' type (values)
  int64_t x_ld, rows;
  const void* w;  // keys or values, w_ld elements apart, `type`
  int64_t w_ld, keys, dim;
  PanelType type;
  float* out;  // rows out_ld apart
  int64_t out_ld;
};

struct AttentionStages {
  /// exp2 here has a relative error of at most 1.5 * 2^-23, and is 0 below 2^-126.
  void (*softmax)(const SoftmaxTile&);
  /// Returns false if a result is not finite.
  bool (*finish)(const FinishTile&);
  /// Adds the sums of another piece of the keys to out, sum, base and top of `rows` rows.
  void (*merge)(const FinishTile& piece, float* out, float* base, float* sum, float* top);
  /// Computes p_panels, d_panels and d from scores and grad.
  void (*gradient)(const GradTile&);
  /// The two halves of `gradient`; a score hook changes grad between them. First: p_panels and, in place, grad. Second:
  /// d_panels and d.
  void (*gradient_before_hook)(const GradTile&);
  void (*gradient_after_hook)(const GradTile&);
  void (*keep)(const KeepRow&);
  /// out[r, j] = the dot product of x[r] and w[j], in f32; out has room for whole groups of 32.
  void (*row_scores)(const RowProduct&);
  /// out[r] += the sum of x[r, j] w[j]; out has room for whole groups of 32.
  void (*row_values)(const RowProduct&);
  /// x *= scale, rows x cols.
  void (*scale)(float* x, int64_t ld, int64_t rows, int64_t cols, float scale);
  /// out[r] = the dot product of rows r of a and b (n contiguous elements); finite[r] = whether row r of b is finite.
  void (*dots)(const void* a, int64_t a_ld, const void* b, int64_t b_ld, int64_t rows, int64_t n, PanelType type,
               float* out, bool* finite);
  /// to[c, r] = scale * from[r, c]; rows of `to` are to_ld elements apart.
  void (*store_transposed)(const float* from, int64_t ld, int64_t rows, int64_t cols, float scale, void* to,
                           int64_t to_ld, PanelType type);
  /// to[r, c] = scale * (from[0][r, c] + ... ), the pieces in order.
  void (*store_sum)(const float* const* from, int64_t pieces, int64_t ld, int64_t rows, int64_t cols, float scale,
                    void* to, int64_t to_ld, PanelType type);
};

#define WEFT_DECLARE_ATTENTION(isa)          \
  namespace isa {                            \
  const AttentionStages& attention_stages(); \
  }
WEFT_DECLARE_ATTENTION(baseline)
WEFT_DECLARE_ATTENTION(avx2)
WEFT_DECLARE_ATTENTION(avx512)
WEFT_DECLARE_ATTENTION(amx)
#undef WEFT_DECLARE_ATTENTION

}  // namespace weft::kernels
