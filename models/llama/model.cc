#include "models/llama/model.h"

#include <cmath>

#include "ops/core/dot.h"

namespace weft::llama {
namespace {

constexpr double kStd = 0.02;

}  // namespace

Model::Model(const Config& c)
    : ConfiguredModel(c), tok_(c.vocab, c.dim, {.std = kStd}), norm_(c.dim, {.eps = c.norm_eps}) {
  register_module("tok", tok_);
  for (int64_t i = 0; i < c.layers; ++i)
    blocks_.emplace_back(c.dim,
                         nn::BlockOptions{.heads = c.heads,
                                          .kv_heads = c.kv_heads,
                                          .hidden = c.ffn,
                                          .rms_norm = true,
                                          .swiglu = true,
                                          .bias = false,
                                          .norm_eps = c.norm_eps,
                                          .std = kStd,
                                          .residual_std = kStd / ::std::sqrt(2.0 * static_cast<double>(c.layers))});
  register_modules("blocks", blocks_);
  register_module("norm", norm_);
  if (!c.tied) register_module("head", head_.emplace(c.dim, c.vocab, nn::LinearOptions{.bias = false, .std = kStd}));
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
  for (size_t i = 0; i < blocks_.size(); ++i) {
    NameScope scope(str_cat("blocks.", i).c_str());
    x_BTD = blocks_[i](x_BTD, context, static_cast<int64_t>(i));
  }
  return norm_(x_BTD);
}

Tensor Model::head(const Tensor& x) const { return head_ ? (*head_)(x) : linear(x, tok_.weight); }

}  // namespace weft::llama
