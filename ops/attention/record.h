// The records of attention and its derivative: softmax(mod(scale q k^T) where mask) v with the scores never whole in
// memory. What a mod or a mask computes is a graph in the attributes, so that interpreter, derivative, printers and
// analyses need nothing of their own.
#pragma once
#include "framework/ir/op_def.h"

namespace weft {

/// (q [B,Hq,Sq,D], k [Bkv,Hkv,Skv,D], v [Bkv,Hkv,Skv,Dv], tables of `score` ..., tables of `mask` ..., offsets, ranges,
/// tiles of the block mask if block_q > 0, seed and step if dropout > 0 and, if dropout_extents, positions i64 [B],
/// [Hq], [Sq], [Skv], page table i64 [B, n] if paged) -> out [B,Hq,Sq,Dv], lse f32 [B,Hq,Sq], max f32 [B,Hq,Sq].
/// dtypes: one of f32, bf16, f16; scores, their sums and lse are f32. f64 (all f64) has no kernel: it runs
/// plain_attention's primitives.
/// paged: k [P,Hkv,page_size,D], v [P,Hkv,page_size,Dv]; key j of entry b is row j % page_size of page
/// table[b][j / page_size].
/// dropout_extents: the call is a part of a whole [B, Hq, Sq, Skv] of these extents, and draws what the whole draws at
/// these positions. wide: out (the gradients in backward) is f32.
/// {scale, score?: Graph, score_tables, mask?: Graph, block_q, block_kv, block_batch, block_heads, dropout, op_id,
/// dropout_extents, wide, paged}
extern const OpDef attention_op;
/// (attention's operands, out, lse, gradient of out, gradient of lse) -> dq, dk, dv, and of each floating-point table
/// of `score`. Attributes as attention's.
extern const OpDef attention_backward_op;
std::span<const OpDef* const> attention_ops();

namespace internal {

/// Operand positions of an attention node.
struct AttentionOperands {
  int score_first = 3, score_tables = 0, mask_first = 3, mask_tables = 0, blocks = -1, dropout = -1, places = -1,
      pages = -1;
  int count = 3;  // attention's own operands
  AttentionOperands(const Attrs& attrs);
};

/// k and v [P, H, page_size, ...] as [B, H, n page_size, ...], for a table [B, n];
/// pages outside [0, P) give any others.
std::vector<Tensor> gathered_pages(const Tensor& pages, const Tensor& k, const Tensor& v);

/// The same in primitives with all scores in memory; q, k, v may be f64 here (with graphs traced in f64). dropout by
/// the generator's bits.
std::vector<Tensor> plain_attention(const Attrs& attrs, std::span<const Tensor> in);
/// attention_backward's results, likewise.
std::vector<Tensor> plain_attention_backward(const Attrs& attrs, std::span<const Tensor> in);

}  // namespace internal
}  // namespace weft
