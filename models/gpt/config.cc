#include "models/gpt/config.h"

#include "models/gpt/model.h"

namespace weft::gpt {
namespace {

// The sizes of nanoGPT's CPU example and baby GPT, but with RMSNorm and without biases.
Config plain(int64_t layers, int64_t heads, int64_t dim, int64_t context, int64_t vocab) {
  return {.vocab = vocab,
          .context = context,
          .layers = layers,
          .heads = heads,
          .dim = dim,
          .ffn = 4 * dim,
          .rms_norm = true,
          .bias = false,
          .tied = false};
}

Config gpt2(int64_t layers, int64_t heads, int64_t dim) {
  return {.layers = layers, .heads = heads, .dim = dim, .ffn = 4 * dim, .dropout = 0.1};
}

const std::vector<std::pair<std::string, Config>>& table() {
  static const auto* presets = new std::vector<std::pair<std::string, Config>>{
      {"gpt_shakespeare", plain(4, 4, 128, 128, 256)},
      {"gpt_tiny", plain(4, 4, 128, 64, 96)},
      {"gpt_base", plain(6, 6, 384, 256, 96)},
      {"gpt2", gpt2(12, 12, 768)},
      {"gpt2-medium", gpt2(24, 16, 1024)},
      {"gpt2-large", gpt2(36, 20, 1280)},
      {"gpt2-xl", gpt2(48, 25, 1600)},
  };
  return *presets;
}

}  // namespace

Config preset(const std::string& name) { return nn::find_preset(table(), name); }

const nn::ModelFamily& family() { return nn::family_of<Model>(table()); }

}  // namespace weft::gpt
