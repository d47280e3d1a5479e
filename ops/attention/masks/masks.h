// Ready-made masks. Each comment states in one line which keys a query sees. Masks compose with &, |, ! and shift;
// create_block_mask decides each of them by analysis as far as its rule allows.
#pragma once
#include <array>
#include <vector>

#include "ops/attention/masks/block_mask.h"

namespace weft::attention {

using Loc = std::source_location;  // location of the call, for errors

/// q >= kv.
MaskMod causal();
/// 0 <= q - kv <= window: the query's own position and `window` positions before it, as in PyTorch's examples. Hugging
/// Face's sliding_window counts keys instead: its value is window + 1. FlashAttention: window_size = (window, 0).
MaskMod sliding_window(int64_t window, Loc loc = Loc::current());
/// -left <= kv - q <= right; a side of -1 is open. For FlashAttention's window_size, which aligns the last query with
/// the last key, use sliding_window(left, right).shift(Skv - Sq, 0).
MaskMod sliding_window(int64_t left, int64_t right, Loc loc = Loc::current());
/// kv < n, or q >= kv: a prefix that all queries see (Raffel et al. 2020). n: one length, or integers [B].
MaskMod prefix_lm(int64_t n);
MaskMod prefix_lm(const Tensor& n, Loc loc = Loc::current());
/// ids[q] == ids[kv], for integers [S] or [B, S]; sorted ids are decided without evaluating points.
MaskMod document(const Tensor& ids, Loc loc = Loc::current());
/// Same document, and inner(b, h, q, kv) with positions relative to the document's first token. cu_seqlens [N + 1]: 0,
/// the end of the first document, ... (FlashAttention's cu_seqlens, a jagged tensor's offsets). Positions after the
/// last document see nothing.
MaskMod document_offsets(const Tensor& cu_seqlens, MaskMod inner = noop_mask, Loc loc = Loc::current());
/// Same for queries and keys of different lengths, [N + 1] each (FlashAttention's cu_seqlens_q and cu_seqlens_k). inner
/// gets the key position relative to its document's first key; the query position is aligned so that the document's
/// last query meets its last key, as with causal() in FlashAttention.
MaskMod document_offsets(const Tensor& cu_seqlens_q, const Tensor& cu_seqlens_k, MaskMod inner = noop_mask,
                         Loc loc = Loc::current());
/// kv < lengths[b], integers [B]: keys after a sequence's end are padding.
MaskMod padding(const Tensor& lengths, Loc loc = Loc::current());
/// |q - kv| <= window, and q - kv is a multiple of dilation (Beltagy et al. 2020).
MaskMod dilated(int64_t window, int64_t dilation, Loc loc = Loc::current());
/// Concatenated sequences of n tokens: q / n == kv / n, and inner(b, h, q % n, kv % n).
MaskMod batchify(MaskMod inner, int64_t n, Loc loc = Loc::current());
/// q >= kv, and q - kv <= window or kv < sinks (StreamingLLM: Xiao et al. 2023).
MaskMod stream_with_sinks(int64_t window, int64_t sinks, Loc loc = Loc::current());
/// MInference's A-shaped head (Jiang et al. 2024): q >= kv, and kv < initial or q - kv < local.
MaskMod a_shape(int64_t initial, int64_t local, Loc loc = Loc::current());
/// kv is q or an ancestor of q: parents [N] integers, -1 for a root (tree-shaped drafts of speculative decoding).
MaskMod tree(const Tensor& parents, Loc loc = Loc::current());
/// adjacency[q][kv] is not zero: [S, S], [B, S, S] or [B, H, S, S].
MaskMod graph(const Tensor& adjacency, Loc loc = Loc::current());
/// q >= kv, or both in one span: integers [N, 2] or [B, N, 2], begin and end of images in text; empty spans are ignored
/// (Zhou et al. 2024).
MaskMod transfusion(const Tensor& spans, Loc loc = Loc::current());
/// Blocks of noised tokens [0, n) and clean tokens [n, 2n): a noised block sees itself and the clean blocks before it;
/// a clean block sees itself and the clean blocks before it (BD3-LM: Arriola et al. 2025).
MaskMod block_diffusion(int64_t block, int64_t n, Loc loc = Loc::current());
/// Blocks drafted after a context (DFlash). Queries are consecutive blocks of `block` tokens; keys are the context [0,
/// context) and then the same blocks. A block sees the context before its anchor and all of itself. anchors: integers
/// [N] or [B, N], one per block; -1: the block sees nothing, not even itself.
MaskMod dflash(const Tensor& anchors, int64_t block, int64_t context, Loc loc = Loc::current());
/// Multi-token prediction trained over several steps (EAGLE-3): keys are n tokens and, for each further step, n more. A
/// query sees the first n causally, and in each further step the key at its own position. lengths, integers [B]
/// (default: n): positions after them see nothing and are not visible.
MaskMod multi_token(int64_t n, const Tensor& lengths = Tensor(), Loc loc = Loc::current());
/// Text to images: query q sees the tokens of image i = kv / tokens_per_image if intervals[i][0] <= q <
/// intervals[i][1]; integers [N, 2] or [B, N, 2] (Alayrac et al. 2022).
MaskMod flamingo(const Tensor& intervals, int64_t tokens_per_image, Loc loc = Loc::current());
/// The inner mask over a paged cache: key kv is in page kv / page_size, which holds page page_table[b][page] of entry
/// b's sequence (integers [B, pages], -1: not a page of b). If `lengths` is given, keys at lengths[b] and beyond are
/// empty.
MaskMod paged(const Tensor& page_table, int64_t page_size, MaskMod inner = noop_mask, const Tensor& lengths = Tensor(),
              Loc loc = Loc::current());
/// masks[h](b, h, q, kv); heads beyond the list see nothing.
MaskMod per_head(std::vector<MaskMod> masks, Loc loc = Loc::current());

// Grids: tokens of an image [height, width] or a video [frames, height, width], all extents in this order.

/// Each token of a line sees the `kernel` nearest tokens: |clamp(q, kernel / 2, n - 1 - kernel / 2) - kv| <= kernel /
/// 2.
MaskMod neighborhood_1d(int64_t canvas, int64_t kernel, Loc loc = Loc::current());
/// The same in each of two dims, with tokens in rows (NATTEN: Hassani et al. 2023).
MaskMod neighborhood_2d(std::array<int64_t, 2> canvas, std::array<int64_t, 2> kernel, Loc loc = Loc::current());
/// The same in each of three dims.
MaskMod neighborhood_3d(std::array<int64_t, 3> canvas, std::array<int64_t, 3> kernel, Loc loc = Loc::current());
/// neighborhood_2d over tokens stored tile by tile, with rows inside each tile: near tokens share blocks.
MaskMod neighborhood_2d_tiled(std::array<int64_t, 2> canvas, std::array<int64_t, 2> kernel, std::array<int64_t, 2> tile,
                              Loc loc = Loc::current());
MaskMod neighborhood_3d_tiled(std::array<int64_t, 3> canvas, std::array<int64_t, 3> kernel, std::array<int64_t, 3> tile,
                              Loc loc = Loc::current());
/// neighborhood_2d over tokens in Morton order: x in the even bits, y in the odd bits; the canvas is square, a power of
/// 2.
MaskMod neighborhood_2d_morton(int64_t canvas, std::array<int64_t, 2> kernel, Loc loc = Loc::current());
/// Sliding tile attention (Zhang et al. 2025): tokens are stored tile by tile. A tile sees the tiles of the window
/// (kernel, in tokens) around its own, clamped to the canvas. `text` tokens after the canvas see all tokens and are
/// seen by all.
MaskMod sta_2d(std::array<int64_t, 2> canvas, std::array<int64_t, 2> kernel, std::array<int64_t, 2> tile,
               int64_t text = 0, Loc loc = Loc::current());
MaskMod sta_3d(std::array<int64_t, 3> canvas, std::array<int64_t, 3> kernel, std::array<int64_t, 3> tile,
               int64_t text = 0, Loc loc = Loc::current());
/// Sparse VideoGen's spatial heads (Xi et al. 2025): q < prompt or kv < prompt, or kv in the first frame of
/// `frame` tokens, or |q - kv| < window.
MaskMod svg_spatial(int64_t prompt, int64_t frame, int64_t window, Loc loc = Loc::current());
/// Its temporal heads: q < prompt or kv < prompt, or |(q - prompt) % frame - (kv - prompt) % frame| < window.
MaskMod svg_temporal(int64_t prompt, int64_t frame, int64_t window, Loc loc = Loc::current());

}  // namespace weft::attention
