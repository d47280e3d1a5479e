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
  nn::RotaryOptions rotary{.theta = 500000};
  int64_t no_rope_every = 0;  // every n-th layer has no rotary positions (SmolLM3: 4); 0: all have them
  int64_t head_dim = 0;       // 0: dim / heads
  bool attn_bias = false;     // biases of queries, keys, values and attention's output
  bool qkv_bias = false;      // biases of queries, keys and values (Qwen 2)
  bool qk_norm = false;       // norms of each head's queries and keys (Qwen 3)

  template <class F>
  void fields(F&& f) {
    f("vocab", vocab, nn::kVocab), f("context", context, nn::kContext), f("layers", layers, nn::kLayers);
    f("heads", heads, nn::kSize), f("kv_heads", kv_heads, nn::kSize), f("dim", dim, nn::kSize);
    f("ffn", ffn, nn::kSize), f("tied", tied), f("norm_eps", norm_eps, nn::kPositive);
    rotary.fields(f);
    f("no_rope_every", no_rope_every, nn::kSizeOrNone), f("head_dim", head_dim, nn::kHeadDim);
    f("attn_bias", attn_bias), f("qkv_bias", qkv_bias), f("qk_norm", qk_norm);
  }
};

/// llama-8b, llama-70b (Llama 3), llama-405b (3.1), llama-1b, llama-3b (3.2), llama2-7b, mistral-7b, tinyllama-1.1b,
/// smollm2-135m, qwen-32b; llama_tiny; llama_shakespeare, whose tokens are bytes.
Config preset(const std::string& name);
const nn::ModelFamily& family();

}  // namespace weft::llama
