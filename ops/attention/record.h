// The records of attention and its derivative: softmax(mod(scale q k^T) where mask) v; the whole scores never exist in
// memory. Mods and masks are graphs in the attributes, so interpreter, derivative, printers and analyses need no
// special code for them.
#pragma once
#include "framework/ir/op_def.h"

namespace weft {

/// Operands, in this order (AttentionOperands has their positions):
///   q              [B, Hq, Sq, D]       f32, bf16, f16 or f64
///   k              [Bkv, Hkv, Skv, D]   q's dtype; Bkv is B or 1; paged: [P, Hkv, page_size, D]
///   v              [Bkv, Hkv, Skv, Dv]  q's dtype; paged: [P, Hkv, page_size, Dv]
///   score tables   score_tables of them, the further inputs of `score`
///   mask tables    mask_tables of them, the further inputs of `mask`
///   block mask     offsets, ranges, tiles; if block_q > 0
///   seed, step     i64; if dropout
///   positions      i64 [B], [Hq], [Sq], [Skv]; if dropout and dropout_extents
///   page table     i64 [B, n]; if paged; key j of entry b is row j % page_size of page table[b][j / page_size]
/// Results: out [B, Hq, Sq, Dv] (q's dtype, or f32 if wide), log_sum and max f32 [B, Hq, Sq]. max is the largest score
/// as softmax sees it, that is before the factor softmax_scale(attrs), and log_sum = log(sum(exp(softmax_scale (score -
/// max)))): the log-sum-exp is softmax_scale max + log_sum. They are apart because their sum loses log_sum where max is
/// huge, as in a row of keys that a large finite number masks. The gradient of log_sum counts as the gradient of the
/// log-sum-exp; max has none. Scores, their sums and log_sum are f32. f64 (all operands f64) has no kernel: it runs the
/// primitives of plain_attention.
/// Attributes:
///   scale                                        factor of q k^T
///   score?, score_tables, mask?, mask_tables     graphs, and how many tables each reads
///   block_q, block_kv, block_batch, block_heads  of the block mask; block_q 0: none
///   dropout?, op_id, dropout_extents?            dropout_extents [B, Hq, Sq, Skv]: the call is a part of a whole with
///                                                these extents, and uses the whole's random bits at `positions`
///   wide?                                        out (in backward: the gradients) is f32
///   fixed_tables?                                in backward; bit i: the gradient of score table i is not wanted
///   paged?                                       k and v are pages
extern const OpDef attention_op;
/// (attention's operands, out, log_sum, max, gradient of out, gradient of log_sum) -> dq, dk, dv, and the gradient of
/// each learned table of `score`: a floating-point table that is not in fixed_tables. Same attributes as attention.
extern const OpDef attention_backward_op;
std::span<const OpDef* const> attention_ops();

namespace internal {

/// Operand positions of an attention node.
struct AttentionOperands {
  int score_first = 3, score_tables = 0, mask_first = 3, mask_tables = 0, blocks = -1, dropout = -1, places = -1,
      pages = -1;
  int count = 3;  // attention's own operands
  int64_t fixed_tables = 0;
  AttentionOperands(const Attrs& attrs);
  /// Whether backward has a result for score table i, of this dtype.
  bool learned(int i, DType t) const;
};

/// The graph in this attribute; null if absent.
inline const Graph* graph_of(const Attrs& attrs, const char* key) {
  return attrs.has(key) ? attrs.get<Ref<Graph>>(key).get() : nullptr;
}

/// The factor of scores as softmax sees them in natural exponents: `scale`, unless scores are scaled before, for a
/// score_mod or because the scale is not positive. As kernels::softmax_scale.
inline double softmax_scale(const Attrs& attrs) {
  return graph_of(attrs, "score") || !(attrs.f("scale") > 0) ? 1 : attrs.f("scale");
}

/// k and v [P, H, page_size, ...] as [B, H, n page_size, ...], for a table [B, n]; page numbers outside [0, P) select
/// arbitrary pages.
std::vector<Tensor> gathered_pages(const Tensor& pages, const Tensor& k, const Tensor& v);

/// Attention in primitives, with the whole scores in memory. q, k, v may be f64 here (with graphs traced in f64).
/// Dropout uses the generator's bits.
std::vector<Tensor> plain_attention(const Attrs& attrs, std::span<const Tensor> in);
/// attention_backward's results, in the same way.
std::vector<Tensor> plain_attention_backward(const Attrs& attrs, std::span<const Tensor> in);

}  // namespace internal
}  // namespace weft
