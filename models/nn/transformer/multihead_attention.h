// PyTorch's MultiheadAttention, with its parameter names, and its encoder and decoder layers.
#pragma once
#include <concepts>
#include <string_view>

#include "models/nn/dropout.h"
#include "models/nn/layers/linear.h"
#include "models/nn/layers/norm.h"

namespace weft::nn {

struct MultiheadAttentionOptions {
  double dropout = 0;  // applied to the probabilities, in train()
  bool bias = true;
  bool add_bias_kv = false;    // one more key and value, which are parameters
  bool add_zero_attn = false;  // one more key and value of zeros
  int64_t kdim = 0, vdim = 0;  // width of keys and values; 0: embed_dim
  bool batch_first = false;    // operands are [batch, length, dim] instead of [length, batch, dim]
};
/// Optional masks of a call. As in PyTorch, true hides a key, and numbers are added to the scores.
struct AttentionMasks {
  Tensor key_padding_mask = {};  // [batch, keys]: bool, or numbers
  Tensor attn_mask = {};         // [queries, keys] or [batch * heads, queries, keys]: bool, or numbers
  bool is_causal = false;        // query i sees keys 0 to i
};

class MultiheadAttention : public Module {
 public:
  Parameter in_proj_weight;                               // [3 embed_dim, embed_dim]: queries, keys, values
  Parameter q_proj_weight, k_proj_weight, v_proj_weight;  // instead, if kdim or vdim differ from embed_dim
  Parameter in_proj_bias;                                 // [3 embed_dim]; undefined without bias
  Parameter bias_k, bias_v;                               // [1, 1, embed_dim], with add_bias_kv
  Linear out_proj;
  MultiheadAttention(int64_t embed_dim, int64_t num_heads, const MultiheadAttentionOptions& options = {},
                     std::source_location loc = std::source_location::current());
  /// PyTorch's third argument: MultiheadAttention(4, 2, 0.1).
  template <std::floating_point P>
  MultiheadAttention(int64_t embed_dim, int64_t num_heads, P dropout,
                     std::source_location loc = std::source_location::current())
      : MultiheadAttention(embed_dim, num_heads, MultiheadAttentionOptions{.dropout = dropout}, loc) {}
  /// The result has the shape of q. Operands have a batch dim or none.
  Tensor operator()(const Arg& q, const Arg& k, const Arg& v, const AttentionMasks& masks = {}) const;
  /// The result and the mean of the probabilities over heads, [batch, queries, keys]; without average_attn_weights the
  /// probabilities of each head, [batch, heads, queries, keys].
  struct WithWeights {
    Tensor output, weights;
  };
  WithWeights with_weights(const Arg& q, const Arg& k, const Arg& v, const AttentionMasks& masks = {},
                           bool average_attn_weights = true) const;

 private:
  WithWeights run(const Arg& q, const Arg& k, const Arg& v, const AttentionMasks& masks, bool weights) const;
  int64_t dim_, heads_;
  double dropout_;
  bool batch_first_, add_zero_attn_;
};

struct TransformerLayerOptions {
  int64_t dim_feedforward = 2048;
  double dropout = 0.1;
  std::string_view activation = "relu";  // or "gelu"
  double layer_norm_eps = 1e-5;
  bool batch_first = false;
  bool norm_first = false;
  bool bias = true;
};

/// Self-attention and a feed-forward layer, each with a residual and a norm after the layer (norm_first: before it).
class TransformerEncoderLayer : public Module {
 public:
  MultiheadAttention self_attn;
  Linear linear1, linear2;
  LayerNorm norm1, norm2;
  Dropout dropout, dropout1, dropout2;
  TransformerEncoderLayer(int64_t d_model, int64_t nhead, const TransformerLayerOptions& options = {},
                          std::source_location loc = std::source_location::current());
  Tensor operator()(const Arg& src, const AttentionMasks& masks = {}) const;

 private:
  bool norm_first_, gelu_;
};

/// Self-attention, attention to `memory`, and a feed-forward layer.
class TransformerDecoderLayer : public Module {
 public:
  MultiheadAttention self_attn, multihead_attn;
  Linear linear1, linear2;
  LayerNorm norm1, norm2, norm3;
  Dropout dropout, dropout1, dropout2, dropout3;
  TransformerDecoderLayer(int64_t d_model, int64_t nhead, const TransformerLayerOptions& options = {},
                          std::source_location loc = std::source_location::current());
  Tensor operator()(const Arg& target, const Arg& memory, const AttentionMasks& target_masks = {},
                    const AttentionMasks& memory_masks = {}) const;

 private:
  bool norm_first_, gelu_;
};

}  // namespace weft::nn
