#include "ops/composite/attention.h"

#include <cmath>
#include <limits>

#include "ops/composite/dropout.h"
#include "ops/composite/precision.h"
#include "ops/composite/softmax.h"
#include "ops/core/dot.h"
#include "ops/core/view.h"

namespace weft {

using internal::floating_of;
using internal::LineScope;

namespace {

constexpr const char* kOp = "scaled_dot_product_attention";
constexpr double kInf = std::numeric_limits<double>::infinity();

Shape leading(const Shape& s, int drop) {
  Shape r = s;
  for (int i = 0; i < drop; ++i) r.pop_back();
  return r;
}

Shape with_last(Shape s, std::initializer_list<int64_t> last) {
  for (int64_t d : last) s.push_back(d);
  return s;
}

// sum over the last dim of `a` and dim `b_dim` of `b`; all dims but the last two are batch.
Tensor contract(const Tensor& a, const Tensor& b, int b_dim, DType out) {
  Shape batch;
  for (int d = 0; d + 2 < a.dim(); ++d) batch.push_back(d);
  return dot_general(a, b, {batch, batch, Shape{a.dim() - 1}, Shape{b_dim}}, out);
}

}  // namespace

Tensor scaled_dot_product_attention(const Arg& query, const Arg& key, const Arg& value, const SdpaOptions& options) {
  Tensor q = floating_of(query, kOp), k = floating_of(key, kOp), v = floating_of(value, kOp);
  WEFT_CHECK(q.dtype() == k.dtype() && q.dtype() == v.dtype(), kOp, ": dtypes are ", q.dtype(), ", ", k.dtype(), ", ",
             v.dtype(), "; need one");
  WEFT_CHECK(q.dim() >= 2 && k.dim() == q.dim() && v.dim() == q.dim(), kOp, ": q ", q.shape(), ", k ", k.shape(),
             ", v ", v.shape(), "; need [..., S, D] with equally many dims");
  WEFT_CHECK(q.size(-1) == k.size(-1), kOp, ": q ", q.shape(), " and k ", k.shape(), "; need equal head dims");
  WEFT_CHECK(k.size(-2) == v.size(-2), kOp, ": k ", k.shape(), " and v ", v.shape(), "; need equally many keys");
  WEFT_CHECK(!(options.is_causal && options.attn_mask.defined()), kOp, ": got both is_causal and attn_mask; need one");
  LineScope line(query.line());

  // Grouped queries: the heads that share a key are more rows of one matrix, so k and v are not copied.
  const int64_t sq = q.size(-2), skv = k.size(-2), d = q.size(-1), dv = v.size(-1);
  const bool grouped = options.enable_gqa && q.dim() >= 3 && q.size(-3) != k.size(-3);
  Shape heads = leading(q.shape(), 2), kv_heads = heads;
  int64_t group = 1;
  if (grouped) {
    WEFT_CHECK(k.size(-3) == v.size(-3) && k.size(-3) > 0 && q.size(-3) % k.size(-3) == 0, kOp, ": ", q.size(-3),
               " query heads, ", k.size(-3), " key and ", v.size(-3), " value heads; need a multiple of equal numbers");
    group = q.size(-3) / k.size(-3);
    kv_heads.back() = k.size(-3);
    heads = broadcast_shapes(leading(q.shape(), 3), leading(k.shape(), 3), kOp);
    kv_heads = with_last(heads, {k.size(-3)});
    heads = with_last(heads, {q.size(-3)});
  } else {
    heads = broadcast_shapes(broadcast_shapes(heads, leading(k.shape(), 2), kOp), leading(v.shape(), 2), kOp);
    kv_heads = heads;
  }
  q = broadcast_to(q, with_last(heads, {sq, d}));
  k = broadcast_to(k, with_last(kv_heads, {skv, d}));
  v = broadcast_to(v, with_last(kv_heads, {skv, dv}));
  if (grouped) q = reshape(q, with_last(kv_heads, {group * sq, d}));

  const DType wide = q.dtype() == kFloat64 ? kFloat64 : kFloat32;
  Tensor scores = contract(q, k, k.dim() - 1, wide) * options.scale.value_or(1 / std::sqrt(static_cast<double>(d)));
  if (grouped) scores = reshape(scores, with_last(heads, {sq, skv}));
  if (options.is_causal) {
    const Tensor row = arange(sq, TensorOptions{.dtype = kInt64, .device = q.device()});
    const Tensor col = arange(skv, TensorOptions{.dtype = kInt64, .device = q.device()});
    scores = where(ge(unsqueeze(row, 1), unsqueeze(col, 0)), scores, -kInf);
  }
  Tensor p;
  if (const Tensor& mask = options.attn_mask; mask.defined()) {
    WEFT_CHECK(broadcast_shapes(scores.shape(), mask.shape(), kOp) == scores.shape(), kOp, ": attn_mask has shape ",
               mask.shape(), "; need one that broadcasts to ", scores.shape());
    WEFT_CHECK(mask.dtype() == kBool || is_floating(mask.dtype()), kOp, ": attn_mask is ", mask.dtype(),
               "; need bool or a floating-point dtype");
    p = internal::softmax_or_zero(mask.dtype() == kBool ? where(mask, scores, -kInf) : scores + mask.to(wide));
  } else {
    p = softmax(scores, -1);
  }
  p = dropout(p, options.dropout_p).to(v.dtype());
  if (grouped) p = reshape(p, with_last(kv_heads, {group * sq, skv}));
  Tensor out = contract(p, v, v.dim() - 2, v.dtype());
  return grouped ? reshape(out, with_last(heads, {sq, dv})) : out;
}

}  // namespace weft
