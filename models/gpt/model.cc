#include "models/gpt/model.h"

#include "ops/core/pointwise.h"
#include "ops/core/products/dot.h"

namespace weft::gpt {

Model::Model(const Config& c, std::source_location loc)
    : ConfiguredModel(c, loc),
      pos_(c.context, c.dim, {.std = kStd}),
      drop_(c.dropout),
      norm_(nn::make_norm(c.rms_norm, c.dim, {.eps = c.norm_eps, .bias = c.bias})) {
  register_module("pos", pos_);
  register_module("drop", drop_);
  for (int64_t i = 0; i < c.layers; ++i)
    blocks_.emplace_back(c.dim, nn::BlockOptions{.heads = c.heads,
                                                 .hidden = c.ffn,
                                                 .rms_norm = c.rms_norm,
                                                 .bias = c.bias,
                                                 .norm_eps = c.norm_eps,
                                                 .dropout = c.dropout,
                                                 .std = kStd,
                                                 .residual_std = residual_std(c)});
  register_blocks(blocks_, norm_);
}

// B batch, T time, D dim
Tensor Model::hidden(const Tensor& tokens_BT, const nn::KvCache* cache) const {
  const Tensor positions_TD = learned_positions(pos_, positions(tokens_BT, cache), cache);
  const nn::AttentionContext context{.cache = cache};
  Tensor x_BTD = drop_(in_compute_dtype(tok_(tokens_BT) + positions_TD));
  for (size_t i = 0; i < blocks_.size(); ++i) x_BTD = blocks_[i](x_BTD, context, static_cast<int64_t>(i));
  return norm_(x_BTD);
}

}  // namespace weft::gpt
