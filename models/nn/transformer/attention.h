// Attention: one projection for queries, keys and values, grouped-query heads, optional rotary positions and KV cache.
#pragma once
#include <optional>

#include "models/nn/dropout.h"
#include "models/nn/layers/linear.h"
#include "models/nn/layers/norm.h"
#include "models/nn/transformer/kv_cache.h"
#include "models/nn/transformer/rotary.h"
#include "ops/attention/flex_attention.h"

namespace weft::nn {

/// Inputs that all attention layers of one forward pass share.
struct AttentionContext {
  RopeTables rope;                 // undefined: no rotary positions
  const KvCache* cache = nullptr;  // null: the keys are the keys of x
  // Mods of this pass, in addition to the layer's own mods. The layer's score_mod runs first; a key is visible if both
  // masks allow it. All mods count q and kv from the start of the sequence, also with a cache.
  ScoreMod score_mod = {};
  MaskMod mask_mod = {};
  // Replaces causal and every mask_mod by one mask whose blocks are computed once for many steps. Requires a pass
  // without a cache.
  BlockMask block_mask = {};
};

struct AttentionOptions {
  int64_t kv_heads = 0;  // 0: equal to heads; else a divisor of heads
  int64_t head_dim = 0;  // 0: dim / heads
  bool bias = false;
  bool qkv_bias = false;    // a bias of queries, keys and values only (Qwen 2)
  bool qk_norm = false;     // RMSNorm of each head's queries and keys before rotary positions (Qwen 3)
  double norm_eps = 1e-5;   // added to the mean square in q_norm and k_norm
  bool causal = true;       // a key is visible only if q >= kv, in addition to mask_mod
  ScoreMod score_mod = {};  // as in flex_attention, for every pass
  MaskMod mask_mod = {};
  double dropout = 0;  // applied to the output
  double std = 0;      // standard deviation of the normal initialisation; 0: Linear's default
  double out_std = 0;  // the same for the output projection; 0: std
};

class Attention : public Module {
 public:
  // The rows of qkv are grouped by key-value head: heads / kv_heads queries, one key, one value, each of head_dim rows.
  // A shard of whole groups along dim 0 is therefore a smaller attention layer.
  Linear qkv, out;
  std::optional<RMSNorm> q_norm, k_norm;  // [head_dim]; empty without qk_norm
  Dropout drop;
  Attention(int64_t dim, int64_t heads, const AttentionOptions& options = {},
            std::source_location loc = std::source_location::current());
  /// x[B, T, dim] -> [B, T, dim].
  Tensor operator()(const Arg& x, const AttentionContext& context = {}, int64_t layer = 0) const;
  int64_t kv_heads() const { return kv_heads_; }
  int64_t head_dim() const { return head_dim_; }

 private:
  int64_t heads_, kv_heads_, head_dim_;
  ScoreMod score_mod_;
  MaskMod mask_mod_;  // includes causal
};

}  // namespace weft::nn
