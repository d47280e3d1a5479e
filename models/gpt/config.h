// Configurations of the GPT-2 family, by name.
#pragma once
#include "models/nn/transformer/language_model.h"

namespace weft::gpt {

struct Config {
  static constexpr const char* kFamily = "gpt";
  int64_t vocab = 50257, context = 1024, layers = 12, heads = 12, dim = 768;
  int64_t ffn = 3072;     // hidden size of the feed-forward layers
  bool rms_norm = false;  // RMSNorm instead of LayerNorm
  bool bias = true;       // in linear layers and LayerNorm
  bool tied = true;       // the head shares the token embedding
  double norm_eps = 1e-5;
  double dropout = 0;  // applied to the embeddings and to each layer's addition to the residual

  template <class F>
  void fields(F&& f) {
    f("vocab", vocab, nn::kVocab), f("context", context, nn::kContext), f("layers", layers, nn::kLayers);
    f("heads", heads, nn::kSize), f("dim", dim, nn::kSize), f("ffn", ffn, nn::kSize);
    f("rms_norm", rms_norm), f("bias", bias), f("tied", tied);
    f("norm_eps", norm_eps, nn::kPositive), f("dropout", dropout, nn::kShare);
  }
};

/// gpt2, gpt2-medium, gpt2-large, gpt2-xl (Radford et al. 2019); gpt_tiny, gpt_base; gpt_shakespeare, whose tokens are
/// bytes.
Config preset(const std::string& name);
const nn::ModelFamily& family();

}  // namespace weft::gpt
