#include "tools/bench/model.h"

#include "framework/dispatch/capture.h"
#include "models/nn/model_flops.h"

namespace weft::bench {

const ModelShape& model_shape(const std::string& name) {
  static const std::vector<ModelShape> shapes = {
      {"gpt_tiny", 4, 4, 128, 64, 12, 96, 0, 0, 512},
      {"gpt_base", 6, 6, 384, 256, 16, 96, 0, 0, 1536},
      {"moe_small", 4, 8, 256, 256, 16, 96, 8, 2, 512},
  };
  for (const ModelShape& s : shapes)
    if (s.name == name) return s;
  WEFT_CHECK_AS(kNotFound, false, "no configuration '", name,
                "'; there are gpt_tiny, gpt_base, moe_small, resnet, lstm");
  return shapes[0];
}

Decoder::Decoder(const ModelShape& s)
    : shape_(s), tok_(s.vocab, s.dim), pos_(s.context, s.dim), norm_(s.dim), head_(s.dim, s.vocab, {.bias = false}) {
  register_module("tok", tok_);
  register_module("pos", pos_);
  for (int64_t i = 0; i < s.layers; ++i) {
    Layer& l =
        layers_.emplace_back(Layer{nn::RMSNorm(s.dim), nn::Attention(s.dim, s.heads), nn::RMSNorm(s.dim), {}, {}});
    const std::string at = "blocks." + std::to_string(i) + ".";
    register_module(at + "norm1", l.norm1);
    register_module(at + "attn", l.attn);
    register_module(at + "norm2", l.norm2);
    if (s.experts) {
      l.moe.emplace_back(s.dim, nn::MoEOptions{.experts = s.experts, .top_k = s.top_k, .hidden = s.hidden});
      register_module(at + "moe", l.moe[0]);
    } else {
      l.mlp.emplace_back(s.dim, s.hidden, nn::MlpOptions{.bias = false});
      register_module(at + "mlp", l.mlp[0]);
    }
  }
  register_module("norm", norm_);
  register_module("head", head_);
}

Tensor Decoder::loss(const Tensor& tokens, const Tensor& targets, DType dtype) const {
  Tensor x = (tok_(tokens) + pos_(arange(tokens.size(1), {.dtype = kInt64, .device = tokens.device()}))).to(dtype);
  Tensor aux;
  for (const Layer& l : layers_) {
    x = x + l.attn(l.norm1(x));
    const Tensor n = l.norm2(x);
    if (l.moe.empty()) {
      x = x + l.mlp[0](n);
    } else {
      const nn::MoEOut out = l.moe[0](n);
      x = x + out.y;
      aux = aux.defined() ? aux + out.aux : out.aux;
    }
  }
  const Tensor loss = cross_entropy(head_(norm_(x)), targets);
  return aux.defined() ? loss + aux : loss;
}

double Decoder::step_flops() const {
  const TensorType rows{kInt64, parameters().front().type().device, {shape_.batch, shape_.context}};
  const Ref<Graph> forward =
      capture_graph([this](std::span<const Tensor> in) { return std::vector{loss(in[0], in[1], kFloat32)}; },
                    std::vector{rows, rows});
  return nn::training_flops(*forward);
}

}  // namespace weft::bench
