#include "models/llama/config.h"

#include "models/llama/model.h"

namespace weft::llama {
namespace {

Config stretched(Config c, double factor) {
  c.context = 131072;
  c.rope_factor = factor;
  return c;
}

const std::vector<std::pair<std::string, Config>>& table() {
  static const auto* presets = new std::vector<std::pair<std::string, Config>>{
      {"llama_shakespeare",
       {.vocab = 256,
        .context = 128,
        .layers = 4,
        .heads = 4,
        .kv_heads = 2,
        .dim = 128,
        .ffn = 384,
        .rope_theta = 10000}},
      {"llama_tiny",
       {.vocab = 96,
        .context = 64,
        .layers = 4,
        .heads = 4,
        .kv_heads = 2,
        .dim = 128,
        .ffn = 384,
        .rope_theta = 10000}},
      {"smollm2-135m",
       {.vocab = 49152,
        .context = 8192,
        .layers = 30,
        .heads = 9,
        .kv_heads = 3,
        .dim = 576,
        .ffn = 1536,
        .tied = true,
        .rope_theta = 100000}},
      {"tinyllama-1.1b",
       {.vocab = 32000,
        .context = 2048,
        .layers = 22,
        .heads = 32,
        .kv_heads = 4,
        .dim = 2048,
        .ffn = 5632,
        .rope_theta = 10000}},
      {"llama2-7b",
       {.vocab = 32000,
        .context = 4096,
        .layers = 32,
        .heads = 32,
        .kv_heads = 32,
        .dim = 4096,
        .ffn = 11008,
        .rope_theta = 10000}},
      {"mistral-7b",
       {.vocab = 32000,
        .context = 8192,
        .layers = 32,
        .heads = 32,
        .kv_heads = 8,
        .dim = 4096,
        .ffn = 14336,
        .rope_theta = 10000}},
      {"llama-1b", stretched({.layers = 16, .heads = 32, .dim = 2048, .ffn = 8192, .tied = true}, 32)},
      {"llama-3b", stretched({.layers = 28, .heads = 24, .dim = 3072, .ffn = 8192, .tied = true}, 32)},
      {"llama-8b", {}},
      {"llama-70b", {.layers = 80, .heads = 64, .dim = 8192, .ffn = 28672}},
      {"llama-405b", stretched({.layers = 126, .heads = 128, .dim = 16384, .ffn = 53248}, 8)},
  };
  return *presets;
}

}  // namespace

Config preset(const std::string& name) { return nn::find_preset(table(), name); }

const nn::ModelFamily& family() {
  static const auto* f = new nn::ModelFamily(nn::make_family<Model>(table()));
  return *f;
}

}  // namespace weft::llama
