#include "ops/attention/flex_attention.h"

#include <algorithm>
#include <cmath>

#include "framework/dispatch/dispatch.h"
#include "framework/dispatch/state/generator.h"
#include "ops/attention/mods/mod.h"
#include "ops/attention/record.h"
#include "ops/core/core.h"

namespace weft {

using internal::LineScope;

namespace {

constexpr const char* kOp = "flex_attention";
// Set by tests around calls of this thread (KeepAttentionNodes).
thread_local bool keep_nodes = false;

void check(const Tensor& q, const Tensor& k, const Tensor& v, const FlexAttentionOptions& o) {
  WEFT_CHECK(is_floating(q.dtype()) && itemsize(q.dtype()) > 1, kOp, ": q is ", q.dtype(),
             "; need f32, bf16, f16 or f64");
  WEFT_CHECK(k.dtype() == q.dtype() && v.dtype() == q.dtype(), kOp, ": dtypes of q, k, v are ", q.dtype(), ", ",
             k.dtype(), ", ", v.dtype(), "; need one");
  WEFT_CHECK(q.dim() == 4 && k.dim() == 4 && v.dim() == 4, kOp, ": q ", q.shape(), ", k ", k.shape(), ", v ", v.shape(),
             "; need 4 dims each: [batch, heads, sequence, head_dim]");
  WEFT_CHECK(q.size(3) == k.size(3), kOp, ": head dims of q ", q.shape(), " and k ", k.shape(), " differ (", q.size(3),
             " != ", k.size(3), "); only v may have another");
  WEFT_CHECK(k.size(2) == v.size(2) && k.size(1) == v.size(1) && k.size(0) == v.size(0), kOp, ": k ", k.shape(),
             " and v ", v.shape(), " differ before the last dim; need equal batch, heads and keys");
  const bool paged = o.page_table.defined();
  if (paged) {
    const Tensor& t = o.page_table;
    WEFT_CHECK(is_integral(t.dtype()) && t.dim() == 2 && t.size(0) == q.size(0), kOp, ": page_table is ", t.type(),
               " for q ", q.shape(), "; need integers [B, pages of an entry], as in i32[", q.size(0),
               ", 16] for pages k ", Shape{64, k.size(1), 128, k.size(3)});
    WEFT_CHECK(k.size(0) > 0, kOp, ": k ", k.shape(), " has no pages; need one or more");
  }
  const int64_t keys = k.size(2) * (paged ? o.page_table.size(1) : 1);
  WEFT_CHECK(paged || k.size(0) == q.size(0) || k.size(0) == 1, kOp, ": batch of q is ", q.size(0), " and of k and v ",
             k.size(0), "; need the same, or 1 for keys that all share");
  WEFT_CHECK(q.size(1) == k.size(1) || o.enable_gqa, kOp, ": q has ", q.size(1), " heads, k and v have ", k.size(1),
             "; set .enable_gqa = true if neighbouring query heads share a key head");
  WEFT_CHECK(k.size(1) > 0 && q.size(1) % k.size(1) == 0, kOp, ": ", q.size(1), " query heads and ", k.size(1),
             " key heads; need a multiple");
  WEFT_CHECK(!(o.block_mask && o.mask_mod), kOp,
             ": got both block_mask and mask_mod; need one: "
             "create_block_mask(a & b, B, H, Sq, Skv) holds the pairs that both masks let pass");
  if (o.block_mask) o.block_mask.check_fits(kOp, q.size(0), q.size(1), q.size(2), keys);
  WEFT_CHECK(o.dropout_p >= 0 && o.dropout_p < 1, kOp, ": dropout_p is ", o.dropout_p, "; need 0 or more, below 1");
}

/// A block mask's arrays as tensors that keep it alive.
std::vector<Tensor> arrays_of(const BlockMask& m) {
  const kernels::BlockMaskView v = m.view();
  const int64_t rows = v.batch * v.heads * v.q_blocks(), ranges = v.offsets[rows];
  int32_t tiles = 0;
  for (int64_t i = 0; i < ranges; ++i) tiles = std::max(tiles, v.ranges[i].tile + 1);
  auto held = [&](const void* data, const Shape& shape, DType type) {
    if (shape.numel() == 0) return Tensor::empty({type, Device::cpu(), shape});
    return Tensor::from_blob(const_cast<void*>(data), shape, type, [m](void*) {});
  };
  return {held(v.offsets, {rows + 1}, kInt64), held(v.ranges, {ranges, 3}, kInt32),
          held(v.tiles, {tiles, v.block_q, v.block_kv / 8}, kUInt8)};
}

internal::AttentionCall call_of(const Arg& q, const Arg& k, const Arg& v, const FlexAttentionOptions& o) {
  return internal::attention_call(internal::tensor_of(q, kOp), internal::tensor_of(k, kOp), internal::tensor_of(v, kOp),
                                  o);
}

// attention's results.
std::vector<Tensor> results(const internal::AttentionCall& call) {
  if (call.operands[0].dtype() == kFloat64 && !(keep_nodes && is_capturing()))
    return internal::plain_attention(call.attrs, call.operands);
  return dispatch_multi(attention_op, internal::pointers(call.operands), call.attrs);
}

}  // namespace

internal::KeepAttentionNodes::KeepAttentionNodes() : before_(keep_nodes) { keep_nodes = true; }
internal::KeepAttentionNodes::~KeepAttentionNodes() { keep_nodes = before_; }

internal::AttentionCall internal::attention_call(const Tensor& given_q, const Tensor& given_k, const Tensor& given_v,
                                                 const FlexAttentionOptions& o) {
  const Tensor q = autocast(given_q), k = autocast(given_k), v = autocast(given_v);
  check(q, k, v, o);
  const DType wide = q.dtype() == kFloat64 ? kFloat64 : kFloat32;
  std::vector<Tensor> in{q, k, v};
  std::vector<Attrs::AttrEntry> attrs{{"scale", o.scale.value_or(1 / std::sqrt(static_cast<double>(q.size(3))))},
                                      {"score_tables", int64_t{0}},
                                      {"mask_tables", int64_t{0}},
                                      {"block_q", int64_t{0}}};
  const auto add = [&](const char* key, size_t tables, const Body& body) {
    attrs.push_back({key, body.graph});
    attrs[tables].second = static_cast<int64_t>(body.lifted.size());
    in.insert(in.end(), body.lifted.begin(), body.lifted.end());
  };
  if (o.score_mod) add("score", 1, internal::trace_score(o.score_mod, wide, q.device()));
  if (o.mask_mod || o.block_mask)
    add("mask", 2, internal::trace_mask(o.block_mask ? o.block_mask.mask() : o.mask_mod, q.device()));
  if (o.block_mask && !o.block_mask.traced() && wide != kFloat64) {
    const kernels::BlockMaskView v = o.block_mask.view();
    attrs[3].second = v.block_q;
    attrs.push_back({"block_kv", v.block_kv});
    attrs.push_back({"block_batch", v.batch});
    attrs.push_back({"block_heads", v.heads});
    for (Tensor& t : arrays_of(o.block_mask)) in.push_back(t.to(q.device()));
  }
  if (o.dropout_p > 0) {
    const RandomKey random = next_random_key(q.device());
    in.push_back(random.seed);
    in.push_back(random.step);
    attrs.push_back({"dropout", o.dropout_p});
    attrs.push_back({"op_id", random.op_id});
  }
  if (o.page_table.defined()) {
    in.push_back(cast(o.page_table, kInt64));
    attrs.push_back({"paged", true});
  }
  return {Attrs(std::move(attrs)), std::move(in)};
}

AttentionResult flex_attention_aux(const Arg& query, const Arg& key, const Arg& value, const FlexAttentionOptions& o) {
  LineScope line(query.line());
  const internal::AttentionCall call = call_of(query, key, value, o);
  const std::vector<Tensor> r = results(call);
  const double scale = internal::softmax_scale(call.attrs);
  const Tensor max = scale == 1 ? r[2].detach() : r[2].detach() * scale;
  return {r[0], r[1] + max, max};
}

Tensor flex_attention(const Arg& query, const Arg& key, const Arg& value, const FlexAttentionOptions& o) {
  LineScope line(query.line());
  return results(call_of(query, key, value, o))[0];
}

}  // namespace weft
