#include "models/moe/config.h"

#include "models/moe/model.h"

namespace weft::moe {

static const std::vector<std::pair<std::string, Config>>& table() {
  static const auto* presets = new std::vector<std::pair<std::string, Config>>{
      {"moe_shakespeare", {}},
      {"moe_small",
       {.vocab = 96,
        .context = 256,
        .layers = 4,
        .heads = 8,
        .kv_heads = 8,
        .dim = 256,
        .rope = false,
        .experts = 8,
        .top_k = 2,
        .ffn = 512}},
      {"moe_tiny",
       {.vocab = 96,
        .context = 64,
        .layers = 2,
        .heads = 4,
        .kv_heads = 2,
        .dim = 64,
        .experts = 4,
        .top_k = 2,
        .ffn = 128,
        .shared_ffn = 64,
        .dense_layers = 1,
        .dense_ffn = 192,
        .score = "sigmoid",
        .aux_loss = 0.001,
        .bias_rate = 0.001}},
      {"mixtral-8x7b",
       {.vocab = 32000,
        .context = 32768,
        .layers = 32,
        .heads = 32,
        .kv_heads = 8,
        .dim = 4096,
        .rotary = {.theta = 1e6},
        .experts = 8,
        .top_k = 2,
        .ffn = 14336,
        .aux_loss = 0.02}},
      {"deepseek-moe-16b",
       {.vocab = 102400,
        .context = 4096,
        .layers = 28,
        .heads = 16,
        .kv_heads = 16,
        .dim = 2048,
        .norm_eps = 1e-6,
        .experts = 64,
        .top_k = 6,
        .ffn = 1408,
        .shared_ffn = 2816,
        .dense_layers = 1,
        .dense_ffn = 10944,
        .normalize = false,
        .aux_loss = 0.001}},
  };
  return *presets;
}

Config preset(const std::string& name) { return nn::find_preset(table(), name); }

const nn::ModelFamily& family() { return nn::family_of<Model>(table()); }

}  // namespace weft::moe
