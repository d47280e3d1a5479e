// Attention: queries, keys and values from one projection, grouped-query heads, optional rotary positions and KV cache.
#pragma once
#include "models/nn/dropout.h"
#include "models/nn/kv_cache.h"
#include "models/nn/linear.h"
#include "ops/attention/flex_attention.h"
#include "ops/composite/rope.h"

namespace weft::nn {

struct RotaryOptions {
  double theta = 10000;  // pair i of D/2 turns by theta^(-2i/D) per position
  // Llama 3.1's stretching of low frequencies; factor 1 is none.
  double factor = 1, low_freq_factor = 1, high_freq_factor = 4;
  int64_t original_context = 8192;
};

/// Tables [count, head_dim / 2] for apply_rope at i64 positions [count]; frequencies are computed in f64.
RopeTables rotary_tables(const Tensor& positions, int64_t head_dim, const RotaryOptions& options = {});

/// What the attention layers of one forward pass share.
struct AttentionContext {
  RopeTables rope;                 // undefined: no rotary positions
  const KvCache* cache = nullptr;  // null: all keys are x's own
  // Of this pass, besides the layer's own: scores go through the layer's mod first; a key is seen if both masks let it
  // pass. In all of them q and kv count from the start of the sequence, with a cache too.
  ScoreMod score_mod = {};
  MaskMod mask_mod = {};
  // All masks in one, with its blocks found once for many steps: in place of causal and every mask_mod. Not with a
  // cache.
  BlockMask block_mask = {};
};

struct AttentionOptions {
  int64_t kv_heads = 0;  // 0: as many as heads; else a divisor of heads
  int64_t head_dim = 0;  // 0: dim / heads
  bool bias = false;
  bool causal = true;       // q >= kv, besides mask_mod
  ScoreMod score_mod = {};  // as in flex_attention, of every pass
  MaskMod mask_mod = {};
  double dropout = 0;  // of the output
  double std = 0;      // of the normal initialisation; 0: Linear's default
  double out_std = 0;  // the same of the output projection; 0: as std
};

class Attention : public Module {
 public:
  // Rows of qkv by key-value head: its heads / kv_heads queries, its key, its value, of head_dim rows each. So a shard
  // of whole groups along dim 0 is a smaller attention layer.
  Linear qkv, out;
  Dropout drop;
  Attention(int64_t dim, int64_t heads, const AttentionOptions& options = {});
  /// x[B, T, dim] -> [B, T, dim].
  Tensor operator()(const Arg& x, const AttentionContext& context = {}, int64_t layer = 0) const;
  int64_t kv_heads() const { return kv_heads_; }
  int64_t head_dim() const { return head_dim_; }

 private:
  int64_t heads_, kv_heads_, head_dim_;
  ScoreMod score_mod_;
  MaskMod mask_mod_;  // causal included
};

}  // namespace weft::nn
