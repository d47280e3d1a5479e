// Configurations of the Llama family, by name.
#pragma once
#include "models/nn/transformer/language_model.h"

namespace weft::llama {

struct Config {
  static constexpr const char* kFamily = "llama";
  int64_t vocab = 128256, context = 8192, layers = 32, heads = 32, kv_heads = 8, dim = 4096;
  int64_t ffn = 14336;  // hidden size of the feed-forward layers
  bool tied = false;    // the head shares the token embedding
  double norm_eps = 1e-5;
  double rope_theta = 500000;
  // Scaling of the rotary frequencies for longer contexts (Llama 3.1); factor 1 scales nothing.
  double rope_factor = 1, rope_low_freq_factor = 1, rope_high_freq_factor = 4;
  int64_t rope_original_context = 8192;

  template <class F>
  void fields(F&& f) {
    f("vocab", vocab, nn::kVocab), f("context", context, nn::kContext), f("layers", layers, nn::kLayers);
    f("heads", heads, nn::kSize), f("kv_heads", kv_heads, nn::kSize), f("dim", dim, nn::kSize);
    f("ffn", ffn, nn::kSize), f("tied", tied), f("norm_eps", norm_eps, nn::kPositive);
    f("rope_theta", rope_theta, nn::kPositive), f("rope_factor", rope_factor, nn::kPositive);
    f("rope_low_freq_factor", rope_low_freq_factor, nn::kPositive);
    f("rope_high_freq_factor", rope_high_freq_factor, nn::kPositive);
    f("rope_original_context", rope_original_context, nn::kContext);
  }
};

/// llama-8b, llama-70b (Llama 3), llama-405b (3.1), llama-1b, llama-3b (3.2), llama2-7b, mistral-7b, tinyllama-1.1b,
/// smollm2-135m, qwen-32b; llama_tiny; llama_shakespeare, whose tokens are bytes.
Config preset(const std::string& name);
const nn::ModelFamily& family();

}  // namespace weft::llama
