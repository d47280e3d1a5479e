#include "ops/composite/layers/attention.h"

#include <algorithm>

#include "framework/dispatch/state/state.h"
#include "ops/attention/flex_attention.h"
#include "ops/composite/precision.h"
#include "ops/core/indexing/view.h"

namespace weft {

using internal::floating_of;
using internal::LineScope;

namespace {

constexpr const char* kOp = "scaled_dot_product_attention";

// The dims before the last `drop` dims.
Shape leading(const Shape& s, int drop) {
  Shape r = s;
  for (int i = 0; i < drop && !r.empty(); ++i) r.pop_back();
  return r;
}

/// x [..., H, rows, last] as [B, H, rows, last], for the whole call's batch dims; B is 1 if all of x's batch dims are
/// 1.
Tensor four_dims(const Tensor& x, const Shape& batch) {
  const int rank = x.dim();
  const int64_t heads = rank > 2 ? x.size(-3) : 1;
  const Shape own = leading(x.shape(), 3);
  if (own.numel() == 1) return reshape(x, {1, heads, x.size(-2), x.size(-1)});
  Shape to = batch;
  for (int64_t n : {heads, x.size(-2), x.size(-1)}) to.push_back(n);
  return reshape(broadcast_to(x, to), {batch.numel(), heads, x.size(-2), x.size(-1)});
}

/// The element of a mask [B or 1, H or 1, Sq or 1, Skv or 1] for one score.
struct MaskAt {
  Tensor table;  // without dims of extent 1
  bool along[4];
  explicit MaskAt(const Tensor& mask) {
    Shape shape;
    for (int d = 0; d < 4; ++d)
      if ((along[d] = mask.size(d) > 1)) shape.push_back(mask.size(d));
    table = reshape(mask, shape);
  }
  Tensor operator()(const Index& b, const Index& h, const Index& q, const Index& kv) const {
    Tensor t = table;
    const Index* at[] = {&b, &h, &q, &kv};
    for (int d = 0; d < 4; ++d)
      if (along[d]) t = t[*at[d]];
    return t;
  }
};

}  // namespace

Tensor scaled_dot_product_attention(const Arg& query, const Arg& key, const Arg& value, const SdpaOptions& options) {
  LineScope line(query.line());
  using internal::autocast;
  Tensor q = autocast(floating_of(query, kOp)), k = autocast(floating_of(key, kOp)),
         v = autocast(floating_of(value, kOp));
  WEFT_CHECK(q.dtype() == k.dtype() && q.dtype() == v.dtype(), kOp, ": dtypes are ", q.dtype(), ", ", k.dtype(), ", ",
             v.dtype(), "; need one");
  WEFT_CHECK(std::min({q.dim(), k.dim(), v.dim()}) >= 2, kOp, ": q ", q.shape(), ", k ", k.shape(), ", v ", v.shape(),
             "; need [..., S, D]");
  WEFT_CHECK(q.size(-1) == k.size(-1), kOp, ": q ", q.shape(), " and k ", k.shape(), "; need equal head dims");
  WEFT_CHECK(k.size(-2) == v.size(-2), kOp, ": k ", k.shape(), " and v ", v.shape(), "; need equal numbers of keys");
  WEFT_CHECK(!(options.is_causal && options.attn_mask.defined()), kOp, ": got both is_causal and attn_mask; need one");

  const int rank = std::max({q.dim(), k.dim(), v.dim()});
  for (Tensor* t : {&q, &k, &v}) {
    Shape shape = t->shape();
    while (shape.size() < rank) shape.insert(0, 1);
    if (t->dim() < rank) *t = reshape(*t, shape);
  }
  const int64_t hq = q.dim() > 2 ? q.size(-3) : 1, hk = k.dim() > 2 ? k.size(-3) : 1, hv = v.dim() > 2 ? v.size(-3) : 1;
  const Shape batch =
      broadcast_shapes(broadcast_shapes(leading(q.shape(), 3), leading(k.shape(), 3), kOp), leading(v.shape(), 3), kOp);
  int64_t heads = hq, kv_heads = std::max(hk, hv);
  if (options.enable_gqa) {
    WEFT_CHECK(hk == hv && hk > 0 && hq % hk == 0, kOp, ": ", hq, " query heads, ", hk, " key and ", hv,
               " value heads; need a multiple of equal numbers");
  } else {
    heads = broadcast_shapes(broadcast_shapes({hq}, {hk}, kOp), {hv}, kOp)[0];
    // A head shared by all stays one head.
    if (hk != 1 || hv != 1) kv_heads = heads;
  }
  auto with_heads = [](const Tensor& x, int64_t n) {
    if (x.size(1) == n) return x;
    return broadcast_to(x, {x.size(0), n, x.size(2), x.size(3)});
  };
  Tensor q4 = with_heads(four_dims(q, batch), heads), k4 = with_heads(four_dims(k, batch), kv_heads),
         v4 = with_heads(four_dims(v, batch), kv_heads);
  const int64_t b = batch.numel();
  if (q4.size(0) != b) q4 = broadcast_to(q4, {b, heads, q4.size(2), q4.size(3)});
  if (k4.size(0) != v4.size(0)) {
    k4 = broadcast_to(k4, {b, kv_heads, k4.size(2), k4.size(3)});
    v4 = broadcast_to(v4, {b, kv_heads, v4.size(2), v4.size(3)});
  }

  FlexAttentionOptions o{.scale = options.scale, .enable_gqa = true, .dropout_p = options.dropout_p};
  Shape out = batch;
  if (q.dim() > 2) out.push_back(heads);
  out.push_back(q.size(-2));
  Shape scores = out;
  out.push_back(v.size(-1));
  scores.push_back(k.size(-2));
  if (options.is_causal) o.mask_mod = [](Index, Index, Index i, Index j) { return i >= j; };
  if (const Tensor& mask = options.attn_mask; mask.defined()) {
    WEFT_CHECK(broadcast_shapes(scores, mask.shape(), kOp) == scores, kOp, ": attn_mask has shape ", mask.shape(),
               "; need one that broadcasts to ", scores);
    WEFT_CHECK(mask.dtype() == kBool || is_floating(mask.dtype()), kOp, ": attn_mask is ", mask.dtype(),
               "; need bool or a floating-point dtype");
    Shape full = mask.shape();
    while (full.size() < 3) full.insert(0, 1);
    const MaskAt at(four_dims(reshape(mask, full), batch));
    if (mask.dtype() == kBool) {
      o.mask_mod = [at](Index i, Index h, Index x, Index y) { return at(i, h, x, y); };
    } else {
      o.score_mod = [at](const Score& s) { return s.value + at(s.b, s.h, s.q, s.kv); };
    }
  }
  return reshape(flex_attention(q4, k4, v4, o), out);
}

}  // namespace weft
