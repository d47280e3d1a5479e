#include "tools/plan/model/hf_model.h"

#include <algorithm>
#include <optional>

#include "models/nn/nn.h"
#include "ops/core/creation.h"
#include "ops/core/pointwise.h"
#include "ops/core/products/dot.h"
#include "tools/plan/model/capture_shape.h"

namespace weft::planner {
namespace {

// A layer of llama's kind. Biases and norms of heads count as parameters alone: they add no product.
struct HfBlock : nn::Module {
  nn::RMSNorm norm1, norm2;
  nn::Attention attn;
  std::optional<nn::SwiGlu> ffn;  // a layer contains one of the two
  std::optional<nn::MoE> moe;
  Parameter qkv_bias, qk_norm;

  HfBlock(const HfSizes& s, bool experts)
      : norm1(s.dim), norm2(s.dim), attn(s.dim, s.heads, {.kv_heads = s.kv_heads, .head_dim = s.head_dim}) {
    register_module("norm1", norm1);
    register_module("attn", attn);
    register_module("norm2", norm2);
    if (s.qkv_bias) {
      qkv_bias = nn::constant_parameter({(s.heads + 2 * s.kv_heads) * s.head_dim}, 0);
      register_parameter("qkv_bias", qkv_bias);
    }
    if (s.qk_norm) {
      qk_norm = nn::constant_parameter({2 * s.head_dim}, 1);
      register_parameter("qk_norm", qk_norm);
    }
    if (experts) {
      const nn::MoEOptions options{
          .experts = s.experts, .top_k = s.top_k, .hidden = s.expert_ffn, .shared_hidden = s.shared_ffn};
      register_module("moe", moe.emplace(s.dim, options));
    } else {
      register_module("ffn", ffn.emplace(s.dim, s.ffn));
    }
  }
  Tensor operator()(const Tensor& x, const nn::AttentionContext& context) const {
    const Tensor h = x + attn(norm1(x), context), n = norm2(h);
    return h + (moe ? (*moe)(n).y : (*ffn)(n));
  }
};

struct HfModel : nn::Module {
  nn::Embedding tok;
  std::optional<nn::Embedding> pos;
  std::vector<nn::TransformerBlock> gpt2;
  std::vector<HfBlock> blocks;
  nn::Norm norm;
  std::optional<nn::Linear> head;

  // `layers`: as for captured_shape().
  HfModel(const HfSizes& s, const std::vector<int64_t>& layers)
      : tok(s.vocab, s.dim), norm(nn::make_norm(!s.gpt2, s.dim, {})) {
    register_module("tok", tok);
    if (s.gpt2) register_module("pos", pos.emplace(s.context, s.dim));
    for (size_t i = 0; i < layers.size(); ++i)
      if (s.gpt2)
        gpt2.emplace_back(s.dim, nn::BlockOptions{.heads = s.heads, .hidden = s.ffn});
      else
        blocks.emplace_back(s, s.moe && (i > 0 || s.dense_layers == 0));
    register_modules("blocks", gpt2);
    register_modules("blocks", blocks);
    register_module("norm", norm);
    if (!s.tied) register_module("head", head.emplace(s.dim, s.vocab, nn::LinearOptions{.bias = false}));
  }
  Tensor logits(const Tensor& tokens) const {
    nn::AttentionContext context;
    if (!blocks.empty() && blocks[0].attn.head_dim() % 2 == 0)
      context.rope = nn::rotary_tables(arange(tokens.size(1), {.dtype = kInt64, .device = tokens.device()}),
                                       blocks[0].attn.head_dim());
    Tensor x = tok(tokens);
    for (const auto& block : gpt2) x = block(x);
    for (const HfBlock& block : blocks) x = block(x, context);
    x = norm(x);
    return head ? (*head)(x) : linear(x, tok.weight);
  }
};

}  // namespace

ModelShape hf_model_shape(const HfSizes& s) {
  std::vector<int64_t> layers{s.layers};
  if (s.moe && s.dense_layers > 0) layers = {s.dense_layers};
  if (s.moe && s.dense_layers > 0 && s.layers > s.dense_layers) layers.push_back(s.layers - s.dense_layers);
  layers.push_back(0);
  const HfModel model(s, layers);
  ModelShape shape = captured_shape(
      model, [&](const Tensor& tokens) { return model.logits(tokens); }, s.context, layers);
  shape.name = s.name;
  shape.family = s.gpt2 ? "gpt" : s.moe ? "moe" : "llama";
  return shape;
}

}  // namespace weft::planner
