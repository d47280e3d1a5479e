#include "models/nn/transformer/attention.h"

#include "framework/base/saturate.h"
#include "ops/core/indexing/view.h"
#include "ops/core/pointwise.h"

namespace weft::nn {

namespace {

MaskMod both(const MaskMod& a, const MaskMod& b) { return a && b ? a & b : a ? a : b; }

ScoreMod then(const ScoreMod& a, const ScoreMod& b) { return a && b ? attention::compose(a, b) : a ? a : b; }

// The mods for queries that begin at position `start`.
MaskMod starting_at(const MaskMod& mask, const Tensor& start) {
  return [=](Index b, Index h, Index q, Index kv) { return mask(b, h, Index(q + start), kv); };
}
ScoreMod starting_at(const ScoreMod& mod, const Tensor& start) {
  if (!mod) return mod;
  return [=](const Score& s) { return mod({s.value, s.b, s.h, Index(s.q + start), s.kv}); };
}

int64_t kv_heads_of(int64_t heads, const AttentionOptions& o) { return o.kv_heads ? o.kv_heads : heads; }

// Checks the sizes of the layers.
int64_t head_dim_of(int64_t dim, int64_t heads, const AttentionOptions& o, std::source_location loc) {
  internal::LineScope line(loc);
  WEFT_CHECK(dim > 0 && heads > 0 && o.kv_heads >= 0 && o.head_dim >= 0, "Attention: need positive sizes; got dim ",
             dim, ", heads ", heads, ", kv_heads ", o.kv_heads, ", head_dim ", o.head_dim);
  WEFT_CHECK(o.head_dim || dim % heads == 0, "Attention: dim ", dim, " is not a multiple of heads ", heads,
             "; need a multiple, or set head_dim");
  WEFT_CHECK(heads % kv_heads_of(heads, o) == 0, "Attention: heads ", heads, " is not a multiple of kv_heads ",
             o.kv_heads, "; need a multiple");
  return o.head_dim ? o.head_dim : dim / heads;
}

}  // namespace

Attention::Attention(int64_t dim, int64_t heads, const AttentionOptions& o, std::source_location loc)
    : qkv(dim,
          saturating_mul(head_dim_of(dim, heads, o, loc),
                         saturating_add(heads, saturating_mul(2, kv_heads_of(heads, o)))),
          {.bias = o.bias || o.qkv_bias, .std = o.std}, loc),
      out(saturating_mul(head_dim_of(dim, heads, o, loc), heads), dim,
          {.bias = o.bias, .std = o.out_std > 0 ? o.out_std : o.std}, loc),
      drop(o.dropout, loc),
      heads_(heads),
      kv_heads_(kv_heads_of(heads, o)),
      head_dim_(head_dim_of(dim, heads, o, loc)),
      score_mod_(o.score_mod),
      mask_mod_(o.causal ? both(attention::causal(), o.mask_mod) : o.mask_mod) {
  internal::LineScope line(loc);
  register_module("qkv", qkv);
  register_module("out", out);
  if (o.qk_norm) {
    register_module("q_norm", q_norm.emplace(head_dim_, NormOptions{.eps = o.norm_eps}, loc));
    register_module("k_norm", k_norm.emplace(head_dim_, NormOptions{.eps = o.norm_eps}, loc));
  }
  register_module("drop", drop);
}

Tensor Attention::operator()(const Arg& arg, const AttentionContext& context, int64_t layer) const {
  NameScope scope("attn");
  CallScope call(*this, arg.line());
  const Tensor& x = arg.tensor();
  WEFT_CHECK(x.dim() == 3, "Attention: x is ", x.type(), "; need [batch, time, dim]");
  // B batch, T time, G key-value heads, R queries per key, H = G R heads, D head_dim
  const int64_t B = x.size(0), T = x.size(1), G = kv_heads_, R = heads_ / G, D = head_dim_;
  const Tensor qkv_BTGrD = reshape(qkv(x), {B, T, G, R + 2, D});
  Tensor q_BHTD = transpose(reshape(slice(qkv_BTGrD, 3, 0, R), {B, T, heads_, D}), 1, 2);
  Tensor k_BGTD = transpose(select(qkv_BTGrD, 3, R), 1, 2);
  Tensor v_BGTD = transpose(select(qkv_BTGrD, 3, R + 1), 1, 2);
  if (q_norm) {
    q_BHTD = (*q_norm)(q_BHTD);
    k_BGTD = (*k_norm)(k_BGTD);
  }
  if (context.rope.cos.defined()) {
    q_BHTD = apply_rope(q_BHTD, context.rope);
    k_BGTD = apply_rope(k_BGTD, context.rope);
  }
  FlexAttentionOptions options{.score_mod = then(score_mod_, context.score_mod), .enable_gqa = R > 1};
  if (context.block_mask) {
    WEFT_CHECK(!context.mask_mod && !context.cache, "Attention: got block_mask and ",
               context.cache ? "a cache" : "mask_mod", "; need block_mask alone: it replaces all other masks");
    options.block_mask = context.block_mask;
  } else {
    options.mask_mod = both(mask_mod_, context.mask_mod);
  }
  if (context.cache) {
    const Tensor start = context.cache->position.value();
    const auto written = [end = start + T](Index, Index, Index, Index kv) { return kv < end; };
    options.mask_mod = both(MaskMod(written), options.mask_mod ? starting_at(options.mask_mod, start) : MaskMod());
    options.score_mod = starting_at(options.score_mod, start);
    auto [keys, values] = context.cache->append(layer, k_BGTD, v_BGTD);
    k_BGTD = keys.to(q_BHTD.dtype());
    v_BGTD = values.to(q_BHTD.dtype());
  }
  const Tensor y_BHTD = flex_attention(q_BHTD, k_BGTD, v_BGTD, options);
  return call.result(drop(out(reshape(transpose(y_BHTD, 1, 2), {B, T, heads_ * D}))));
}

}  // namespace weft::nn
