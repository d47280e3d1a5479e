// Ready-made masks. Each says in one line which keys a query sees; they compose with &, |, ! and shift, and every one
// is settled by analysis in create_block_mask as far as its rule allows.
#pragma once
#include <array>
#include <vector>

#include "ops/attention/block_mask.h"

namespace weft::attention {

/// q >= kv.
MaskMod causal();
/// 0 <= q - kv <= window: the query's own position and `window` before it, as in PyTorch's examples. Hugging Face's
/// sliding_window counts keys instead: its value is window + 1. FlashAttention's window_size = (window, 0).
MaskMod sliding_window(int64_t window);
/// -left <= kv - q <= right, a side of -1 open: FlashAttention's window_size, whose last query meets the last key:
/// sliding_window(left, right).shift(Skv - Sq, 0).
MaskMod sliding_window(int64_t left, int64_t right);
/// kv < n, or q >= kv: a prefix that all see (Raffel et al. 2020). n: one length, or integers [B].
MaskMod prefix_lm(int64_t n);
MaskMod prefix_lm(const Tensor& n);
/// ids[q] == ids[kv], for integers [S] or [B, S]; sorted ids are settled without looking at points.
MaskMod document(const Tensor& ids);
/// Same document, and inner(b, h, q, kv) counted from the document's first token. cu_seqlens [N + 1]: 0, the end of the
/// first document, ... (FlashAttention's cu_seqlens, a jagged tensor's offsets); positions behind the last see nothing.
MaskMod document_offsets(const Tensor& cu_seqlens, MaskMod inner = noop_mask);
/// The same where queries and keys have different lengths, [N + 1] each (FlashAttention's cu_seqlens_q and
/// cu_seqlens_k): inner sees the key counted from its document's first and the query so that the document's last query
/// meets its last key, as with causal() in FlashAttention.
MaskMod document_offsets(const Tensor& cu_seqlens_q, const Tensor& cu_seqlens_k, MaskMod inner = noop_mask);
/// kv < lengths[b], integers [B]: keys behind a sequence's end are padding.
MaskMod padding(const Tensor& lengths);
/// |q - kv| <= window, and a multiple of dilation apart (Beltagy et al. 2020).
MaskMod dilated(int64_t window, int64_t dilation);
/// Sequences of n tokens one behind the other: q / n == kv / n, and inner(b, h, q % n, kv % n).
MaskMod batchify(MaskMod inner, int64_t n);
/// q >= kv, and q - kv <= window or kv < sinks (StreamingLLM: Xiao et al. 2023).
MaskMod stream_with_sinks(int64_t window, int64_t sinks);
/// MInference's A-shaped head (Jiang et al. 2024): q >= kv, and kv < initial or q - kv < local.
MaskMod a_shape(int64_t initial, int64_t local);
/// kv is q or an ancestor of q: parents [N] integers, -1 for a root (tree-shaped drafts of speculative decoding).
MaskMod tree(const Tensor& parents);
/// adjacency[q][kv] is not zero: [S, S], [B, S, S] or [B, H, S, S].
MaskMod graph(const Tensor& adjacency);
/// q >= kv, or both in one span: integers [N, 2] or [B, N, 2] of begin and end of images among text, empty spans
/// ignored (Zhou et al. 2024).
MaskMod transfusion(const Tensor& spans);
/// Blocks of noised tokens [0, n) and clean ones [n, 2n): a noised block sees itself and the clean blocks before it, a
/// clean one itself and the clean ones before it (BD3-LM: Arriola et al. 2025).
MaskMod block_diffusion(int64_t block, int64_t n);
/// Blocks drafted after a context (DFlash): queries are blocks of `block` tokens one behind the other, keys the context
/// [0, context) and then the same blocks. A block sees the context before its anchor and all of itself: anchors,
/// integers [N] or [B, N] by block; -1: a block that sees nothing, not even itself.
MaskMod dflash(const Tensor& anchors, int64_t block, int64_t context);
/// Multi-token prediction trained over several steps (EAGLE-3): keys are n tokens and, for each further step, n more. A
/// query sees the first n causally, and of each further step the key of its own position. lengths, integers [B] (none:
/// n): positions behind them see nothing and are not seen.
MaskMod multi_token(int64_t n, const Tensor& lengths = Tensor());
/// Text to images: query q sees the tokens of image i = kv / tokens_per_image where intervals[i][0] <= q <
/// intervals[i][1]; integers [N, 2] or [B, N, 2] (Alayrac et al. 2022).
MaskMod flamingo(const Tensor& intervals, int64_t tokens_per_image);
/// The inner mask over a paged cache: key kv lies in page kv / page_size, which holds page page_table[b][page] of entry
/// b's sequence (integers [B, pages], -1: not its page); keys at lengths[b] and beyond count as empty, if given.
MaskMod paged(const Tensor& page_table, int64_t page_size, MaskMod inner = noop_mask, const Tensor& lengths = Tensor());
/// masks[h](b, h, q, kv); heads beyond the list see nothing.
MaskMod per_head(std::vector<MaskMod> masks);

// Grids: tokens of an image [height, width] or a video [frames, height, width], all extents in this order.

/// Each of a line's tokens sees the `kernel` nearest: |clamp(q, kernel / 2, n - 1 - kernel / 2) - kv| <= kernel / 2.
MaskMod neighborhood_1d(int64_t canvas, int64_t kernel);
/// The same in each of two dims, tokens in rows (NATTEN: Hassani et al. 2023).
MaskMod neighborhood_2d(std::array<int64_t, 2> canvas, std::array<int64_t, 2> kernel);
/// And in each of three.
MaskMod neighborhood_3d(std::array<int64_t, 3> canvas, std::array<int64_t, 3> kernel);
/// neighborhood_2d over tokens that stand tile by tile, rows inside each: nearer tokens share blocks.
MaskMod neighborhood_2d_tiled(std::array<int64_t, 2> canvas, std::array<int64_t, 2> kernel,
                              std::array<int64_t, 2> tile);
MaskMod neighborhood_3d_tiled(std::array<int64_t, 3> canvas, std::array<int64_t, 3> kernel,
                              std::array<int64_t, 3> tile);
/// neighborhood_2d over tokens along Morton's curve: x in the even bits, y in the odd ones; a square canvas, a power
/// of 2.
MaskMod neighborhood_2d_morton(int64_t canvas, std::array<int64_t, 2> kernel);
/// Sliding tile attention (Zhang et al. 2025): tokens tile by tile; a tile sees the tiles of the window (kernel, in
/// tokens) around its own, clamped into the canvas; `text` tokens behind the canvas see and are seen by all.
MaskMod sta_2d(std::array<int64_t, 2> canvas, std::array<int64_t, 2> kernel, std::array<int64_t, 2> tile,
               int64_t text = 0);
MaskMod sta_3d(std::array<int64_t, 3> canvas, std::array<int64_t, 3> kernel, std::array<int64_t, 3> tile,
               int64_t text = 0);
/// Sparse VideoGen's spatial heads (Xi et al. 2025): q < prompt or kv < prompt, or kv in the first frame of
/// `frame` tokens, or |q - kv| < window.
MaskMod svg_spatial(int64_t prompt, int64_t frame, int64_t window);
/// Its temporal heads: q < prompt or kv < prompt, or |(q - prompt) % frame - (kv - prompt) % frame| < window.
MaskMod svg_temporal(int64_t prompt, int64_t frame, int64_t window);

}  // namespace weft::attention
