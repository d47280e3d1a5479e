#include "models/llama/config.h"

#include "models/llama/model.h"

namespace weft::llama {
namespace {

// The sizes of the two small models. `vocab` and `context` follow from their text.
Config small(int64_t vocab, int64_t context) {
  return {.vocab = vocab,
          .context = context,
          .layers = 4,
          .heads = 4,
          .kv_heads = 2,
          .dim = 128,
          .ffn = 384,
          .rotary = {.theta = 10000}};
}

// Models with the vocabulary of Llama 2.
Config llama2(int64_t context, int64_t layers, int64_t kv_heads, int64_t dim, int64_t ffn) {
  return {.vocab = 32000,
          .context = context,
          .layers = layers,
          .kv_heads = kv_heads,
          .dim = dim,
          .ffn = ffn,
          .rotary = {.theta = 10000}};
}

// `c` with Llama 3.1's scaled rotary frequencies for long contexts.
Config scaled(Config c, double factor) {
  c.context = 131072;
  c.rotary.factor = factor;
  return c;
}

const std::vector<std::pair<std::string, Config>>& table() {
  static const auto* presets = new std::vector<std::pair<std::string, Config>>{
      {"llama_shakespeare", small(256, 128)},
      {"llama_tiny", small(96, 64)},
      {"smollm2-135m",
       {.vocab = 49152,
        .context = 8192,
        .layers = 30,
        .heads = 9,
        .kv_heads = 3,
        .dim = 576,
        .ffn = 1536,
        .tied = true,
        .rotary = {.theta = 100000}}},
      {"tinyllama-1.1b", llama2(2048, 22, 4, 2048, 5632)},
      {"llama2-7b", llama2(4096, 32, 32, 4096, 11008)},
      {"mistral-7b", llama2(8192, 32, 8, 4096, 14336)},
      // Qwen2.5-32B.
      {"qwen-32b",
       {.vocab = 152064,
        .context = 32768,
        .layers = 64,
        .heads = 40,
        .dim = 5120,
        .ffn = 27648,
        .norm_eps = 1e-6,
        .rotary = {.theta = 1e6},
        .qkv_bias = true}},
      {"llama-1b", scaled({.layers = 16, .heads = 32, .dim = 2048, .ffn = 8192, .tied = true}, 32)},
      {"llama-3b", scaled({.layers = 28, .heads = 24, .dim = 3072, .ffn = 8192, .tied = true}, 32)},
      {"llama-8b", {}},
      {"llama-70b", {.layers = 80, .heads = 64, .dim = 8192, .ffn = 28672}},
      {"llama-405b", scaled({.layers = 126, .heads = 128, .dim = 16384, .ffn = 53248}, 8)},
  };
  return *presets;
}

}  // namespace

Config preset(const std::string& name) { return nn::find_preset(table(), name); }

const nn::ModelFamily& family() { return nn::family_of<Model>(table()); }

}  // namespace weft::llama
