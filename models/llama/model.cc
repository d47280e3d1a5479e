#include "models/llama/model.h"

#include "ops/core/products/dot.h"

namespace weft::llama {

Model::Model(const Config& c, std::source_location loc) : ConfiguredModel(c, loc), norm_(c.dim, {.eps = c.norm_eps}) {
  for (int64_t i = 0; i < c.layers; ++i)
    blocks_.emplace_back(c.dim, nn::BlockOptions{.heads = c.heads,
                                                 .kv_heads = c.kv_heads,
                                                 .hidden = c.ffn,
                                                 .rms_norm = true,
                                                 .swiglu = true,
                                                 .bias = false,
                                                 .norm_eps = c.norm_eps,
                                                 .std = kStd,
                                                 .residual_std = residual_std(c)});
  register_blocks(blocks_, norm_);
}

RopeTables Model::rope(const Tensor& positions) const {
  const Config& c = config_;
  return nn::rotary_tables(positions, head_dim(),
                           {.theta = c.rope_theta,
                            .factor = c.rope_factor,
                            .low_freq_factor = c.rope_low_freq_factor,
                            .high_freq_factor = c.rope_high_freq_factor,
                            .original_context = c.rope_original_context});
}

// B batch, T time, D dim
Tensor Model::hidden(const Tensor& tokens_BT, const nn::KvCache* cache) const {
  const nn::AttentionContext context{.rope = rope(positions(tokens_BT, cache)), .cache = cache};
  Tensor x_BTD = in_compute_dtype(tok_(tokens_BT));
  for (size_t i = 0; i < blocks_.size(); ++i) x_BTD = blocks_[i](x_BTD, context, static_cast<int64_t>(i));
  return norm_(x_BTD);
}

}  // namespace weft::llama
