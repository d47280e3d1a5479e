#include "models/nn/transformer/transformer_block.h"

#include "framework/base/saturate.h"
#include "ops/core/pointwise.h"

namespace weft::nn {

TransformerBlock::TransformerBlock(int64_t dim, const BlockOptions& o, std::source_location loc)
    : norm1(make_norm(o.rms_norm, dim, {.eps = o.norm_eps, .bias = o.bias}, loc)),
      attn(dim, o.heads,
           {.kv_heads = o.kv_heads,
            .head_dim = o.head_dim,
            .bias = o.bias || o.attn_bias,
            .qkv_bias = o.qkv_bias,
            .qk_norm = o.qk_norm,
            .norm_eps = o.norm_eps,
            .causal = o.causal,
            .score_mod = o.score_mod,
            .mask_mod = o.mask_mod,
            .dropout = o.dropout,
            .std = o.std,
            .out_std = o.residual_std},
           loc),
      norm2(make_norm(o.rms_norm, dim, {.eps = o.norm_eps, .bias = o.bias}, loc)),
      drop(o.dropout, loc) {
  internal::LineScope line(loc);
  const int64_t hidden = o.hidden ? o.hidden : saturating_mul(4, dim);
  register_module("norm1", norm1);
  register_module("attn", attn);
  register_module("norm2", norm2);
  if (o.swiglu) {
    swiglu.emplace(dim, hidden, SwiGluOptions{.bias = o.bias, .std = o.std, .down_std = o.residual_std});
    register_module("ffn", *swiglu);
  } else {
    mlp.emplace(dim, hidden, MlpOptions{.bias = o.bias, .std = o.std, .down_std = o.residual_std});
    register_module("ffn", *mlp);
  }
  register_module("drop", drop);
}

Tensor TransformerBlock::operator()(const Arg& arg, const AttentionContext& context, int64_t layer) const {
  CallScope call(*this, arg.line());
  const Tensor h = arg.tensor() + attn(norm1(arg.tensor()), context, layer);
  const Tensor n = norm2(h);
  return call.result(h + drop(swiglu ? (*swiglu)(n) : (*mlp)(n)));
}

}  // namespace weft::nn
