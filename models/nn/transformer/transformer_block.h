// TransformerBlock: the pre-norm residual block of the GPT and Llama families.
#pragma once
#include <optional>

#include "models/nn/layers/norm.h"
#include "models/nn/transformer/attention.h"
#include "models/nn/transformer/mlp.h"

namespace weft::nn {

struct BlockOptions {
  int64_t heads = 1;
  int64_t kv_heads = 0;   // 0: equal to heads
  int64_t hidden = 0;     // hidden size of the feed-forward layer; 0: 4 dim
  bool rms_norm = false;  // RMSNorm instead of LayerNorm
  bool swiglu = false;    // SwiGlu instead of Mlp
  int64_t head_dim = 0;   // 0: dim / heads
  bool bias = true;
  bool attn_bias = false;                  // biases of attention's projections, if the block has no others
  bool qkv_bias = false, qk_norm = false;  // as in AttentionOptions
  bool causal = true;                      // this and the mods: as in AttentionOptions
  ScoreMod score_mod = {};
  MaskMod mask_mod = {};
  double norm_eps = 1e-5;
  double dropout = 0;       // applied to the additions to the residual
  double std = 0.02;        // standard deviation of the normal initialisation
  double residual_std = 0;  // the same for the two projections back to the residual; 0: std
};

/// h = x + attn(norm1(x)); h + ffn(norm2(h)).
class TransformerBlock : public Module {
 public:
  Norm norm1;
  Attention attn;
  Norm norm2;
  std::optional<Mlp> mlp;  // either this or swiglu, registered as "ffn"
  std::optional<SwiGlu> swiglu;
  Dropout drop;
  TransformerBlock(int64_t dim, const BlockOptions& options,
                   std::source_location loc = std::source_location::current());
  /// x[B, T, dim] -> [B, T, dim].
  Tensor operator()(const Arg& x, const AttentionContext& context = {}, int64_t layer = 0) const;
};

}  // namespace weft::nn
