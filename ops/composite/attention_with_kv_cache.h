// Attention over a cache of keys and values that grows: FlashAttention's flash_attn_with_kvcache, and each of its
// arguments by its name (softmax_scale is `scale`, lse is always returned, results never depend on how the keys are
// split, so that there is no num_splits).
#pragma once
#include <array>
#include <optional>

#include "ops/attention/flex_attention.h"

namespace weft {

struct KvCacheAttentionOptions {
  Tensor k = {}, v = {};  // [B, Hkv, Snew, D or Dv] to append in this call, behind cache_seqlens
  // [positions, R / 2]: the first R features of q and of the new k turn by their positions.
  Tensor rotary_cos = {}, rotary_sin = {};
  // Integers [B], or 0-d for all: how many rows of the cache hold tokens; undefined: all of them.
  Tensor cache_seqlens = {};
  Tensor cache_batch_idx = {};       // integers [B]: which entry of the cache each row of q has; undefined: its own
  Tensor cache_leftpad = {};         // integers [B]: rows of the cache before it are padding
  Tensor block_table = {};           // integers [B, n]: the cache is pages [P, Hkv, page_size, D]; see page_table there
  std::optional<double> scale = {};  // 1 / sqrt(D) unless given
  bool causal = false;               // the last query sees the last key, the one before it one fewer
  std::array<int64_t, 2> window_size = {-1, -1};  // keys before and behind a query's own position; -1: all
  double softcap = 0;                             // above 0: cap * tanh(score / cap)
  bool rotary_interleaved = true;  // pairs are neighbours (2i, 2i + 1); else halves (i, i + R / 2) as in Llama
  Tensor alibi_slopes = {};        // f32 [H] or [B, H]: -slope * |distance| is added to scores
};

struct KvCacheAttention {
  Tensor out;               // [B, Hq, Sq, Dv]
  Tensor lse;               // f32 [B, Hq, Sq]
  Tensor k_cache, v_cache;  // with the new rows
};

/// Queries [B, Hq, Sq, D] that stand behind the tokens of a cache [B, Hkv, capacity, D] and [B, Hkv, capacity, Dv]
/// (entries, or pages of a block_table): new keys are turned and written at rows cache_seqlens, ..., query i stands at
/// position L - Sq + i of the L = cache_seqlens + Snew keys, and keys behind them cost nothing. The cache is not
/// gathered. Returns the cache as a new value: a cell is written in place where a compiled function sets it to that, as
/// in keys.set(r.k_cache). Positions of rotary tables are rows of the cache; where neither causal nor a window is asked
/// for, all queries stand at cache_seqlens.
KvCacheAttention attention_with_kv_cache(const Arg& q, const Arg& k_cache, const Arg& v_cache,
                                         const KvCacheAttentionOptions& options = {});

}  // namespace weft
