#include "models/nn/transformer/multihead_attention.h"

#include <cmath>
#include <limits>

#include "ops/composite/layers/activation.h"
#include "ops/composite/layers/attention.h"
#include "ops/composite/layers/softmax.h"
#include "ops/composite/random/dropout.h"
#include "ops/core/core.h"

namespace weft::nn {
namespace {

// Uniform within sqrt(6 / (rows + columns)) (Glorot and Bengio 2010), as PyTorch starts the projections.
Parameter projection(int64_t rows, int64_t columns) {
  return uniform_parameter({rows, columns}, ::std::sqrt(6.0 / static_cast<double>(rows + columns)));
}

const MultiheadAttentionOptions& positive(int64_t dim, int64_t heads, const MultiheadAttentionOptions& o) {
  WEFT_CHECK(dim > 0 && heads > 0 && dim % heads == 0, "MultiheadAttention: ", heads, " heads of embed_dim ", dim,
             "; need a positive number of heads that divides embed_dim");
  WEFT_CHECK(o.kdim >= 0 && o.vdim >= 0, "MultiheadAttention: kdim is ", o.kdim, " and vdim ", o.vdim,
             "; need positive widths, or 0 for embed_dim");
  WEFT_CHECK(o.dropout >= 0 && o.dropout < 1, "MultiheadAttention: dropout is ", o.dropout,
             "; need a probability below 1");
  return o;
}

// A mask as numbers that are added to scores.
Tensor added(const Tensor& mask, DType dtype) {
  if (mask.dtype() != kBool) return mask.to(dtype);
  return where(mask, -std::numeric_limits<double>::infinity(),
               zeros(mask.shape(), {.dtype = dtype, .device = mask.device()}));
}

}  // namespace

MultiheadAttention::MultiheadAttention(int64_t embed_dim, int64_t num_heads, const MultiheadAttentionOptions& options,
                                       std::source_location loc)
    : out_proj((internal::LineScope(loc), positive(embed_dim, num_heads, options), embed_dim), embed_dim,
               {.bias = options.bias}, loc),
      dim_(embed_dim),
      heads_(num_heads),
      dropout_(options.dropout),
      batch_first_(options.batch_first),
      add_zero_attn_(options.add_zero_attn) {
  internal::LineScope line(loc);
  const int64_t k = options.kdim ? options.kdim : embed_dim, v = options.vdim ? options.vdim : embed_dim;
  if (k == embed_dim && v == embed_dim) {
    in_proj_weight = projection(3 * embed_dim, embed_dim);
    register_parameter("in_proj_weight", in_proj_weight);
  } else {
    q_proj_weight = projection(embed_dim, embed_dim);
    k_proj_weight = projection(embed_dim, k);
    v_proj_weight = projection(embed_dim, v);
    register_parameter("q_proj_weight", q_proj_weight);
    register_parameter("k_proj_weight", k_proj_weight);
    register_parameter("v_proj_weight", v_proj_weight);
  }
  if (options.bias) {
    in_proj_bias = constant_parameter({3 * embed_dim}, 0);
    register_parameter("in_proj_bias", in_proj_bias);
    out_proj.bias = constant_parameter({embed_dim}, 0);
  }
  if (options.add_bias_kv) {
    bias_k = normal_parameter({1, 1, embed_dim}, 1 / ::std::sqrt(static_cast<double>(embed_dim)));
    bias_v = normal_parameter({1, 1, embed_dim}, 1 / ::std::sqrt(static_cast<double>(embed_dim)));
    register_parameter("bias_k", bias_k);
    register_parameter("bias_v", bias_v);
  }
  register_module("out_proj", out_proj);
}

MultiheadAttention::WithWeights MultiheadAttention::run(const Arg& q_arg, const Arg& k_arg, const Arg& v_arg,
                                                        const AttentionMasks& masks, bool weights) const {
  const char* op = "MultiheadAttention";
  Tensor in[] = {internal::tensor_of(q_arg, op), internal::tensor_of(k_arg, op), internal::tensor_of(v_arg, op)};
  const bool batched = in[0].dim() == 3;
  for (Tensor& t : in) {
    WEFT_CHECK(t.dim() == (batched ? 3 : 2), op, ": operands are ", in[0].type(), ", ", in[1].type(), " and ",
               in[2].type(), "; need ", batch_first_ ? "[batch, length, dim]" : "[length, batch, dim]",
               " or [length, dim] for all");
    t = !batched ? unsqueeze(t, 0) : batch_first_ ? t : transpose(t, 0, 1);
  }
  const int64_t batch = in[0].size(0), queries = in[0].size(1), keys = in[1].size(1), width = dim_ / heads_;
  WEFT_CHECK(in[1].size(0) == batch && in[2].size(0) == batch && in[2].size(1) == keys, op,
             ": queries, keys and values have batches ", batch, ", ", in[1].size(0), ", ", in[2].size(0),
             ", and keys and values lengths ", keys, ", ", in[2].size(1),
             "; need equal batches, and equal lengths of keys and values");
  Tensor heads[3];
  for (int i = 0; i < 3; ++i) {
    const Parameter* own[] = {&q_proj_weight, &k_proj_weight, &v_proj_weight};
    const Tensor w = in_proj_weight.defined() ? slice(in_proj_weight, 0, i * dim_, (i + 1) * dim_) : own[i]->value();
    const Tensor b = in_proj_bias.defined() ? slice(in_proj_bias, 0, i * dim_, (i + 1) * dim_) : Tensor();
    Tensor y = linear(in[i], w, b);
    const Shape one{batch, 1, dim_};
    if (const Parameter& more = i == 1 ? bias_k : bias_v; i > 0 && more.defined())
      y = cat({y, broadcast_to(more.value().to(y.dtype()), one)}, 1);
    if (i > 0 && add_zero_attn_) y = cat({y, zeros(one, {.dtype = y.dtype(), .device = y.device()})}, 1);
    heads[i] = transpose(reshape(y, {batch, y.size(1), heads_, width}), 1, 2);  // [batch, heads, length, width]
  }
  const DType scores = is_16bit(heads[0].dtype()) ? kFloat32 : heads[0].dtype();
  Tensor mask;
  if (masks.attn_mask.defined()) {
    const Tensor& m = masks.attn_mask;
    WEFT_CHECK((m.shape() == Shape{queries, keys}) || (m.shape() == Shape{batch * heads_, queries, keys}), op,
               ": attn_mask is ", m.type(), "; need [", queries, ", ", keys, "] or [", batch * heads_, ", ", queries,
               ", ", keys, "]");
    mask = added(m.dim() == 3 ? reshape(m, {batch, heads_, queries, keys}) : m, scores);
  }
  if (masks.key_padding_mask.defined()) {
    const Tensor& m = masks.key_padding_mask;
    WEFT_CHECK(m.numel() == batch * keys && m.dim() <= 2, op, ": key_padding_mask is ", m.type(), "; need [", batch,
               ", ", keys, "]");
    const Tensor hidden = added(reshape(m, {batch, 1, 1, keys}), scores);
    mask = mask.defined() ? mask + hidden : hidden;
  }
  const int64_t more = heads[1].size(2) - keys;  // keys that every query sees
  if (masks.is_causal && (mask.defined() || weights || more > 0)) {
    const Tensor later = triu(ones({queries, keys}, {.dtype = kBool, .device = in[0].device()}), 1);
    mask = mask.defined() ? mask + added(later, scores) : added(later, scores);
  }
  if (mask.defined() && more > 0) mask = pad(mask, {0, more});
  const double drop = is_training() ? dropout_ : 0;
  WithWeights r;
  Tensor y;
  if (weights) {
    Tensor s = matmul(heads[0].to(scores), transpose(heads[1].to(scores), 2, 3)) *
               (1 / ::std::sqrt(static_cast<double>(width)));
    if (mask.defined()) s = s + mask;
    Tensor p = softmax(s, -1);
    if (drop > 0) p = weft::dropout(p, drop);
    r.weights = p;
    y = matmul(p.to(heads[2].dtype()), heads[2]);
  } else {
    y = scaled_dot_product_attention(
        heads[0], heads[1], heads[2],
        {.attn_mask = mask, .dropout_p = drop, .is_causal = masks.is_causal && !mask.defined()});
  }
  y = out_proj(reshape(transpose(y, 1, 2), {batch, queries, dim_}));
  r.output = !batched ? squeeze(y, 0) : batch_first_ ? y : transpose(y, 0, 1);
  if (!batched && r.weights.defined()) r.weights = squeeze(r.weights, 0);
  return r;
}

Tensor MultiheadAttention::operator()(const Arg& q, const Arg& k, const Arg& v, const AttentionMasks& masks) const {
  CallScope call(*this, q.line());
  return call.result(run(q, k, v, masks, false).output);
}

MultiheadAttention::WithWeights MultiheadAttention::with_weights(const Arg& q, const Arg& k, const Arg& v,
                                                                 const AttentionMasks& masks,
                                                                 bool average_attn_weights) const {
  CallScope call(*this, q.line());
  WithWeights r = run(q, k, v, masks, true);
  if (average_attn_weights) r.weights = mean(r.weights, -3);
  return call.result(r);
}

namespace {

bool is_gelu(std::string_view activation) {
  WEFT_CHECK(activation == "relu" || activation == "gelu", "Transformer layer: activation is '", activation,
             "'; need \"relu\" or \"gelu\"");
  return activation == "gelu";
}

MultiheadAttentionOptions attention_options(const TransformerLayerOptions& o) {
  return {.dropout = o.dropout, .bias = o.bias, .batch_first = o.batch_first};
}

// x plus the result of a part of the layer; the norm comes before or after.
template <class Part>
Tensor residual(const Tensor& x, const LayerNorm& norm, bool norm_first, const Part& part) {
  return norm_first ? x + part(norm(x)) : norm(x + part(x));
}

}  // namespace

TransformerEncoderLayer::TransformerEncoderLayer(int64_t d_model, int64_t nhead, const TransformerLayerOptions& o,
                                                 std::source_location loc)
    : self_attn(d_model, nhead, attention_options(o), loc),
      linear1(d_model, o.dim_feedforward, {.bias = o.bias}, loc),
      linear2(o.dim_feedforward, d_model, {.bias = o.bias}, loc),
      norm1(d_model, {.eps = o.layer_norm_eps, .bias = o.bias}, loc),
      norm2(d_model, {.eps = o.layer_norm_eps, .bias = o.bias}, loc),
      dropout(o.dropout, loc),
      dropout1(o.dropout, loc),
      dropout2(o.dropout, loc),
      norm_first_(o.norm_first) {
  internal::LineScope line(loc);
  gelu_ = is_gelu(o.activation);
  register_module("self_attn", self_attn);
  register_module("linear1", linear1);
  register_module("dropout", dropout);
  register_module("linear2", linear2);
  register_module("norm1", norm1);
  register_module("norm2", norm2);
  register_module("dropout1", dropout1);
  register_module("dropout2", dropout2);
}

Tensor TransformerEncoderLayer::operator()(const Arg& src, const AttentionMasks& masks) const {
  CallScope call(*this, src.line());
  const auto attend = [&](const Tensor& x) { return dropout1(self_attn(x, x, x, masks)); };
  const auto feed = [&](const Tensor& x) {
    const Tensor h = linear1(x);
    return dropout2(linear2(dropout(gelu_ ? gelu(h) : relu(h))));
  };
  const Tensor x = residual(internal::tensor_of(src, "TransformerEncoderLayer"), norm1, norm_first_, attend);
  return call.result(residual(x, norm2, norm_first_, feed));
}

TransformerDecoderLayer::TransformerDecoderLayer(int64_t d_model, int64_t nhead, const TransformerLayerOptions& o,
                                                 std::source_location loc)
    : self_attn(d_model, nhead, attention_options(o), loc),
      multihead_attn(d_model, nhead, attention_options(o), loc),
      linear1(d_model, o.dim_feedforward, {.bias = o.bias}, loc),
      linear2(o.dim_feedforward, d_model, {.bias = o.bias}, loc),
      norm1(d_model, {.eps = o.layer_norm_eps, .bias = o.bias}, loc),
      norm2(d_model, {.eps = o.layer_norm_eps, .bias = o.bias}, loc),
      norm3(d_model, {.eps = o.layer_norm_eps, .bias = o.bias}, loc),
      dropout(o.dropout, loc),
      dropout1(o.dropout, loc),
      dropout2(o.dropout, loc),
      dropout3(o.dropout, loc),
      norm_first_(o.norm_first) {
  internal::LineScope line(loc);
  gelu_ = is_gelu(o.activation);
  register_module("self_attn", self_attn);
  register_module("multihead_attn", multihead_attn);
  register_module("linear1", linear1);
  register_module("dropout", dropout);
  register_module("linear2", linear2);
  register_module("norm1", norm1);
  register_module("norm2", norm2);
  register_module("norm3", norm3);
  register_module("dropout1", dropout1);
  register_module("dropout2", dropout2);
  register_module("dropout3", dropout3);
}

Tensor TransformerDecoderLayer::operator()(const Arg& target, const Arg& memory, const AttentionMasks& target_masks,
                                           const AttentionMasks& memory_masks) const {
  CallScope call(*this, target.line());
  const Tensor& m = internal::tensor_of(memory, "TransformerDecoderLayer");
  const auto self = [&](const Tensor& x) { return dropout1(self_attn(x, x, x, target_masks)); };
  const auto cross = [&](const Tensor& x) { return dropout2(multihead_attn(x, m, m, memory_masks)); };
  const auto feed = [&](const Tensor& x) {
    const Tensor h = linear1(x);
    return dropout3(linear2(dropout(gelu_ ? gelu(h) : relu(h))));
  };
  const Tensor x = residual(internal::tensor_of(target, "TransformerDecoderLayer"), norm1, norm_first_, self);
  return call.result(residual(residual(x, norm2, norm_first_, cross), norm3, norm_first_, feed));
}

}  // namespace weft::nn
