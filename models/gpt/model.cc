#include "models/gpt/model.h"

#include <cmath>

#include "ops/core/dot.h"
#include "ops/core/pointwise.h"
#include "ops/core/view.h"

namespace weft::gpt {
namespace {

constexpr double kStd = 0.02;

nn::Norm make_norm(const Config& c) {
  const nn::NormOptions options{.eps = c.norm_eps, .bias = c.bias};
  return c.rms_norm ? nn::Norm(nn::RMSNorm(c.dim, options)) : nn::Norm(nn::LayerNorm(c.dim, options));
}

}  // namespace

Model::Model(const Config& c)
    : config_(c),
      tok_(c.vocab, c.dim, {.std = kStd}),
      pos_(c.context, c.dim, {.std = kStd}),
      drop_(c.dropout),
      norm_(make_norm(c)) {
  register_module("tok", tok_);
  register_module("pos", pos_);
  register_module("drop", drop_);
  for (int64_t i = 0; i < c.layers; ++i)
    blocks_.emplace_back(c.dim,
                         nn::BlockOptions{.heads = c.heads,
                                          .hidden = c.ffn,
                                          .rms_norm = c.rms_norm,
                                          .bias = c.bias,
                                          .norm_eps = c.norm_eps,
                                          .dropout = c.dropout,
                                          .std = kStd,
                                          .residual_std = kStd / ::std::sqrt(2.0 * static_cast<double>(c.layers))});
  register_modules("blocks", blocks_);
  register_module("norm", norm_);
  if (!c.tied) register_module("head", head_.emplace(c.dim, c.vocab, nn::LinearOptions{.bias = false, .std = kStd}));
}

// B batch, T time, D dim, V vocab
Tensor Model::forward(const Tensor& tokens_BT, const Tensor& positions_TD, const nn::AttentionContext& context) const {
  Tensor x_BTD = drop_(in_compute_dtype(tok_(tokens_BT) + positions_TD));
  for (size_t i = 0; i < blocks_.size(); ++i) {
    NameScope scope(str_cat("blocks.", i).c_str());
    x_BTD = blocks_[i](x_BTD, context, static_cast<int64_t>(i));
  }
  x_BTD = norm_(x_BTD);
  return head_ ? (*head_)(x_BTD) : linear(x_BTD, tok_.weight);
}

Tensor Model::logits(const Tensor& tokens) const {
  check_tokens(tokens);
  return forward(tokens, slice(pos_.weight, 0, 0, tokens.size(1)), {});
}

Tensor Model::logits(const Tensor& tokens, const nn::KvCache& cache) const {
  check_tokens(tokens);
  const int64_t T = tokens.size(1);
  const Tensor y = forward(tokens, pos_(cache.next_positions(T)), {.cache = &cache});
  cache.advance(T);
  return y;
}

nn::KvCacheShape Model::cache_shape() const {
  return {.layers = config_.layers,
          .kv_heads = config_.heads,
          .capacity = config_.context,
          .head_dim = config_.dim / config_.heads};
}

double Model::flops_per_token(int64_t length) const {
  const Config& c = config_;
  const int64_t matrices = c.layers * (4 * c.dim * c.dim + 2 * c.dim * c.ffn) + c.dim * c.vocab;
  return static_cast<double>(6 * matrices + 12 * c.layers * length * c.dim);
}

}  // namespace weft::gpt
