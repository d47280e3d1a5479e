#include "models/moe/model.h"

#include <cmath>

#include "ops/composite/loss/loss.h"
#include "ops/core/creation.h"
#include "ops/core/indexing/view.h"
#include "ops/core/pointwise.h"
#include "ops/core/products/dot.h"
#include "ops/core/reductions/reduce.h"

namespace weft::moe {

Block::Block(const Config& c, bool dense, double std, double residual_std)
    : norm1(c.dim, {.eps = c.norm_eps}),
      attn(c.dim, c.heads,
           {.kv_heads = c.kv_heads,
            .head_dim = c.head_dim,
            .qkv_bias = c.qkv_bias,
            .qk_norm = c.qk_norm,
            .norm_eps = c.norm_eps,
            .std = std,
            .out_std = residual_std}),
      norm2(c.dim, {.eps = c.norm_eps}) {
  register_module("norm1", norm1);
  register_module("attn", attn);
  register_module("norm2", norm2);
  if (dense) {
    register_module("ffn", ffn.emplace(c.dim, c.dense_ffn, nn::SwiGluOptions{.std = std, .down_std = residual_std}));
  } else {
    register_module("moe", moe.emplace(c.dim, nn::MoEOptions{.experts = c.experts,
                                                             .top_k = c.top_k,
                                                             .hidden = c.ffn,
                                                             .shared_hidden = c.shared_ffn,
                                                             .capacity_factor = c.capacity_factor,
                                                             .score = c.score,
                                                             .normalize = c.normalize,
                                                             .route_scale = c.route_scale,
                                                             .aux_loss = c.aux_loss,
                                                             .z_loss = c.z_loss,
                                                             .bias_rate = c.bias_rate,
                                                             .route = c.route,
                                                             .std = std,
                                                             .down_std = residual_std}));
  }
}

Tensor Block::operator()(const Tensor& x, const nn::AttentionContext& context, int64_t layer,
                         std::vector<nn::MoEOut>& routed) const {
  const Tensor h = x + attn(norm1(x), context, layer);
  if (ffn) return h + (*ffn)(norm2(h));
  routed.push_back((*moe)(norm2(h)));
  return h + routed.back().y;
}

Model::Model(const Config& c, std::source_location loc) : ConfiguredModel(c, loc), norm_(c.dim, {.eps = c.norm_eps}) {
  internal::LineScope line(loc);
  if (c.rope) nn::rotary_frequencies(head_dim(), c.rotary);  // throws for settings that no forward pass accepts
  if (!c.rope) register_module("pos", pos_.emplace(c.context, c.dim, nn::EmbeddingOptions{.std = kStd}));
  for (int64_t i = 0; i < c.layers; ++i) blocks_.emplace_back(c, i < c.dense_layers, kStd, residual_std(c));
  register_blocks(blocks_, norm_);
}

// B batch, T time, D dim, L layers with experts, E experts
Tensor Model::blocks(const Tensor& tokens_BT, const nn::KvCache* cache, std::vector<nn::MoEOut>& routed) const {
  const Tensor positions_T = positions(tokens_BT, cache);
  Tensor x_BTD = tok_(tokens_BT);
  if (pos_) x_BTD = x_BTD + learned_positions(*pos_, positions_T, cache);
  nn::AttentionContext context{.cache = cache};
  if (config_.rope) context.rope = nn::rotary_tables(positions_T, head_dim(), config_.rotary);
  x_BTD = in_compute_dtype(x_BTD);
  for (size_t i = 0; i < blocks_.size(); ++i) {
    NameScope scope(str_cat("blocks.", i).c_str());
    x_BTD = blocks_[i](x_BTD, context, static_cast<int64_t>(i), routed);
  }
  return norm_(x_BTD);
}

Tensor Model::hidden(const Tensor& tokens, const nn::KvCache* cache) const {
  std::vector<nn::MoEOut> routed;
  return blocks(tokens, cache, routed);
}

nn::LossOut Model::loss(const Tensor& tokens, const Tensor& targets, const nn::BatchShare& share) const {
  check_tokens(tokens);
  std::vector<nn::MoEOut> routed;
  const Tensor ce = cross_entropy_of(head(blocks(tokens, nullptr, routed)), targets, share);
  const TensorOptions here{.device = ce.device()};
  Tensor aux = zeros({}, here);
  std::vector<Tensor> counts, dropped;
  for (const nn::MoEOut& r : routed) {
    aux = aux + r.aux;
    counts.push_back(r.counts);
    dropped.push_back(r.dropped);
  }
  if (share.rows != 1) aux = aux * share.rows;
  const Tensor counts_LE =
      counts.empty() ? zeros({0, config_.experts}, {.dtype = kInt64, .device = ce.device()}) : stack(counts);
  const double choices = static_cast<double>(tokens.numel() * config_.top_k) * static_cast<double>(counts.size());
  return {.loss = ce + aux,
          .ce = ce,
          .aux = aux,
          .expert_load = sum(counts_LE, 0).to(kFloat32) / ::std::fmax(choices, 1),
          .dropped = dropped.empty() ? zeros({0}, here) : stack(dropped),
          .expert_counts = counts_LE};
}

void Model::update_balance(const Tensor& expert_counts) const {
  int64_t l = 0;
  for (const Block& block : blocks_)
    if (block.moe) block.moe->update_balance(select(expert_counts, 0, l++));
}

}  // namespace weft::moe
