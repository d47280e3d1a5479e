#include "models/llama/model.h"

#include <cmath>

#include "ops/core/creation.h"
#include "ops/core/dot.h"

namespace weft::llama {
namespace {

constexpr double kStd = 0.02;

}  // namespace

Model::Model(const Config& c) : config_(c), tok_(c.vocab, c.dim, {.std = kStd}), norm_(c.dim, {.eps = c.norm_eps}) {
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

// B batch, T time, D dim, V vocab
Tensor Model::forward(const Tensor& tokens_BT, const nn::AttentionContext& context) const {
  Tensor x_BTD = in_compute_dtype(tok_(tokens_BT));
  for (size_t i = 0; i < blocks_.size(); ++i) {
    NameScope scope(str_cat("blocks.", i).c_str());
    x_BTD = blocks_[i](x_BTD, context, static_cast<int64_t>(i));
  }
  x_BTD = norm_(x_BTD);
  return head_ ? (*head_)(x_BTD) : linear(x_BTD, tok_.weight);
}

Tensor Model::logits(const Tensor& tokens) const {
  check_tokens(tokens);
  return forward(tokens, {.rope = rope(arange(tokens.size(1), {.dtype = kInt64, .device = tokens.device()}))});
}

Tensor Model::logits(const Tensor& tokens, const nn::KvCache& cache) const {
  check_tokens(tokens);
  const int64_t T = tokens.size(1);
  const Tensor y = forward(tokens, {.rope = rope(cache.next_positions(T)), .cache = &cache});
  cache.advance(T);
  return y;
}

nn::KvCacheShape Model::cache_shape() const {
  return {.layers = config_.layers, .kv_heads = config_.kv_heads, .capacity = config_.context, .head_dim = head_dim()};
}

double Model::flops_per_token(int64_t length) const {
  const Config& c = config_;
  const int64_t attention = 2 * c.dim * c.dim + 2 * c.dim * c.kv_heads * head_dim();
  const int64_t matrices = c.layers * (attention + 3 * c.dim * c.ffn) + c.dim * c.vocab;
  return static_cast<double>(6 * matrices + 12 * c.layers * length * c.dim);
}

}  // namespace weft::llama
