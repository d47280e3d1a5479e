// Attention over tiles that stay in the nearest caches (Dao et al. 2022, Milakov and Gimelshein 2018): the whole score
// matrix never exists. Forward keeps a running maximum and sum for each query. Backward recomputes the probabilities
// from the scores, their maximum and the logarithm of the sum, with five products for each tile. The tasks, and the
// order of sums inside them, depend on the shapes and the block mask only: the bits are the same for any number of
// threads.
#pragma once
#include "framework/tensor/view.h"
#include "ops/kernels/attention/block_mask.h"

namespace weft::kernels {

/// The largest tile of scores.
inline constexpr int64_t kScoreTileRows = 256, kScoreTileCols = 128;
/// A tile of scores: queries q0 + i, keys kv0 + j, element (i, j) at [i * ld + j].
struct ScoreTile {
  /// Backward: below attention_tasks(...); tiles of one task come one after another, in a fixed order. Forward: 0.
  int64_t task;
  int64_t batch, head;  // batch entry and head of q
  int64_t q0, kv0, rows, cols, ld;
  float scale;  // scale of q k^T
};
/// A score_mod: scales a score and modifies it before masking. Called from pool tasks.
struct ScoreHook {
  /// Replaces q k^T by the modified t.scale * q k^T, in place.
  void (*forward)(const void* context, const ScoreTile& t, float* scores);
  /// grad: on entry, the gradient of the modified scores (0 where masked); on return, the gradient of the scaled scores
  /// before modification. raw: q k^T, 0 where masked. May add to gradients of its own, stored separately per task.
  void (*backward)(const void* context, const ScoreTile& t, const float* raw, float* grad);
  const void* context;
};

/// Dropout of probabilities: each is 0, or divided by 1 - p, depending on the generator's bits at its position in [B,
/// Hq, Sq, Skv].
struct AttentionDropout {
  double p = 0;
  uint64_t seed = 0, step = 0;
  uint32_t op_id = 0;  // as in random_bits
  /// If the call is a part of a whole call: positions of its batch entries, heads, queries and keys in the whole [B,
  /// heads, q_len, kv_len]. Null: the call is the whole.
  const int64_t *b = nullptr, *h = nullptr, *q = nullptr, *kv = nullptr;
  int64_t heads = 0, q_len = 0, kv_len = 0;
};

/// q [B, Hq, Sq, D], k [Bkv, Hkv, Skv, D], v [Bkv, Hkv, Skv, Dv]. Bkv is B or 1. Hq is a multiple of Hkv: neighbouring
/// query heads share keys. Any strides; one dtype of f32, bf16, f16.
struct Attention {
  StridedView q, k, v;
  double scale = 1;
  const BlockMaskView* blocks = nullptr;  // null: every block is kUnknown if `mask` is given, else kFull
  const MaskFill* mask = nullptr;         // required if a block is kUnknown
  const ScoreHook* score = nullptr;
  /// Backward, if not 0: tasks with equal number modulo score_groups run one after another, in a fixed order. A score
  /// hook can then store its own gradients per ScoreTile::task modulo score_groups.
  int64_t score_groups = 0;
  AttentionDropout dropout;
  /// Keys and values in pages, k [P, Hkv, page_size, D] and v [P, Hkv, page_size, Dv]. Key j of batch entry b is row
  /// j % page_size of page pages[b * page_count + j / page_size], so Skv is page_count * page_size. Masked keys may
  /// have a page outside [0, P). Forward only. Null: the keys of each entry are contiguous.
  const int64_t* pages = nullptr;
  int64_t page_count = 0;
};

/// Writes out [B, Hq, Sq, Dv] in q's dtype or f32, and log_sum and max, f32 [B, Hq, Sq], contiguous; either address may
/// be null. max: the largest of the masked scores as softmax sees them: modified if there is a score hook, scaled if
/// the scale is not positive, else q k^T. log_sum: log(sum(exp(softmax_scale(a) * (score - max)))). So the log-sum-exp
/// is softmax_scale(a) * max + log_sum; apart, a huge max leaves the digits of log_sum. A query that sees no key gives
/// zeros, -inf and -inf.
void attention(const Attention& a, const StridedView& out, float* log_sum, float* max, void* workspace);
/// The factor of scores as softmax sees them in natural exponents.
inline double softmax_scale(const Attention& a) { return a.score || !(a.scale > 0) ? 1 : a.scale; }
/// Bytes of workspace for attention, 64-byte aligned. Reads only shapes, types, strides of the last dims, which
/// pointers are null, and the block mask's extents of `a`; so do attention_backward_workspace and attention_tasks.
int64_t attention_workspace(const Attention& a);

/// Gradients of sum(out * dout) + sum(lse * dlse), lse the log-sum-exp: dq, dk, dv in q's dtype or f32, with any
/// strides except that the last is 1; sums are in f32.
struct AttentionGrad {
  StridedView out;                                 // as attention wrote it
  const float *log_sum = nullptr, *max = nullptr;  // as attention wrote them
  StridedView dout;                                // in q's dtype, shaped as out
  const float* dlse = nullptr;                     // null: zero
  StridedView dq, dk, dv;
};
void attention_backward(const Attention& a, const AttentionGrad& g, void* workspace);
int64_t attention_backward_workspace(const Attention& a);
/// The number of tasks of attention_backward: ScoreTile::task is below it.
int64_t attention_tasks(const Attention& a);

}  // namespace weft::kernels
