// Attention over a growing cache of keys and values: FlashAttention's flash_attn_with_kvcache, with all of its
// arguments under their names, except that softmax_scale is `scale`, lse is always returned, and there is no
// num_splits, because results never depend on how the keys are split.
#pragma once
#include <array>
#include <optional>

#include "ops/attention/flex_attention.h"

namespace weft {

struct KvCacheAttentionOptions {
  Tensor k = {}, v = {};  // [B, Hkv, Snew, D or Dv] to append in this call, after cache_seqlens
  // [positions, R / 2]: rotates the first R features of q and of the new k by their positions.
  Tensor rotary_cos = {}, rotary_sin = {};
  // Integers [B], or 0-d for all entries: number of rows of the cache that have tokens; undefined: all rows.
  Tensor cache_seqlens = {};
  Tensor cache_batch_idx = {};  // integers [B]: the cache entry of each batch entry of q; undefined: the same index
  Tensor cache_leftpad = {};    // integers [B]: rows of the cache before it are padding
  // Integers [B, n]: the cache is pages [P, Hkv, page_size, D]; see flex_attention's page_table.
  Tensor block_table = {};
  std::optional<double> scale = {};               // default: 1 / sqrt(D)
  bool causal = false;                            // the last query sees the last key, each earlier query one fewer
  std::array<int64_t, 2> window_size = {-1, -1};  // keys before and after a query's own position; -1: all
  double softcap = 0;                             // above 0: cap * tanh(score / cap)
  bool rotary_interleaved = true;  // pairs are neighbours (2i, 2i + 1); otherwise halves (i, i + R / 2) as in Llama
  Tensor alibi_slopes = {};        // f32 [H] or [B, H]: -slope * |distance| is added to scores
};

struct KvCacheAttention {
  Tensor out;               // [B, Hq, Sq, Dv]
  Tensor lse;               // f32 [B, Hq, Sq]
  Tensor k_cache, v_cache;  // caches with the new rows
};

/// Queries [B, Hq, Sq, D] at the end of a cache [B, Hkv, capacity, D] and [B, Hkv, capacity, Dv] (entries, or pages of
/// a block_table). New keys are rotated and written at rows cache_seqlens, ... Query i has position L - Sq + i among
/// the L = cache_seqlens + Snew keys; cache rows after these keys cost nothing. The cache is not gathered. Returns the
/// cache as a new value: a compiled function updates a cell in place if it sets the cell to that value, as in
/// keys.set(r.k_cache). Positions of rotary tables are rows of the cache. If neither causal nor a window is set, all
/// queries have position cache_seqlens.
KvCacheAttention attention_with_kv_cache(const Arg& q, const Arg& k_cache, const Arg& v_cache,
                                         const KvCacheAttentionOptions& options = {});

}  // namespace weft
