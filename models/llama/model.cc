#include "models/llama/model.h"

#include "ops/core/products/dot.h"

namespace weft::llama {

Model::Model(const Config& c, std::source_location loc) : ConfiguredModel(c, loc), norm_(c.dim, {.eps = c.norm_eps}) {
  internal::LineScope line(loc);
  nn::rotary_frequencies(head_dim(), c.rotary);  // throws for settings that no forward pass accepts
  for (int64_t i = 0; i < c.layers; ++i)
    blocks_.emplace_back(c.dim, nn::BlockOptions{.heads = c.heads,
                                                 .kv_heads = c.kv_heads,
                                                 .hidden = c.ffn,
                                                 .rms_norm = true,
                                                 .swiglu = true,
                                                 .head_dim = c.head_dim,
                                                 .bias = false,
                                                 .attn_bias = c.attn_bias,
                                                 .qkv_bias = c.qkv_bias,
                                                 .qk_norm = c.qk_norm,
                                                 .norm_eps = c.norm_eps,
                                                 .std = kStd,
                                                 .residual_std = residual_std(c)});
  register_blocks(blocks_, norm_);
}

// B batch, T time, D dim
Tensor Model::hidden(const Tensor& tokens_BT, const nn::KvCache* cache) const {
  const nn::AttentionContext rotated{.rope = nn::rotary_tables(positions(tokens_BT, cache), head_dim(), config_.rotary),
                                     .cache = cache},
      plain{.cache = cache};
  Tensor x_BTD = in_compute_dtype(tok_(tokens_BT));
  const int64_t every = config_.no_rope_every;
  for (int64_t i = 0; i < config_.layers; ++i)
    x_BTD = blocks_[static_cast<size_t>(i)](x_BTD, every && (i + 1) % every == 0 ? plain : rotated, i);
  return norm_(x_BTD);
}

}  // namespace weft::llama
