// The models whose training step is measured: the shapes of pytorch/train_step.py, weight for weight.
#pragma once
#include <string>
#include <vector>

#include "weft.h"

namespace weft::bench {

struct ModelShape {
  std::string name;
  int64_t layers, heads, dim, context, batch, vocab, experts, top_k, hidden;
};

/// gpt_tiny, gpt_base or moe_small; throws, listing the names, for any other name.
const ModelShape& model_shape(const std::string& name);

/// A pre-norm decoder with RMSNorm, learned positions and an untied head, without biases; a layer's feed-forward part
/// is down(gelu(up(x))), or dropless top-k SwiGLU experts.
class Decoder : public nn::Module {
 public:
  explicit Decoder(const ModelShape& shape);
  /// Mean cross-entropy of targets[B, T] given tokens[B, T], plus the experts' load-balance loss;
  /// activations in `dtype`.
  Tensor loss(const Tensor& tokens, const Tensor& targets, DType dtype) const;
  /// Model FLOPs of one training step (models/nn/model_flops.h).
  double step_flops() const;

 private:
  struct Layer {
    nn::RMSNorm norm1;
    nn::Attention attn;
    nn::RMSNorm norm2;
    std::vector<nn::Mlp> mlp;  // one or none
    std::vector<nn::MoE> moe;
  };
  ModelShape shape_;
  nn::Embedding tok_, pos_;
  std::vector<Layer> layers_;
  nn::RMSNorm norm_;
  nn::Linear head_;
};

}  // namespace weft::bench
