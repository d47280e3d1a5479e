// Llama: RMSNorm, rotary positions, grouped-query attention and SwiGLU (Touvron et al. 2023).
#pragma once
#include "models/llama/config.h"
#include "models/nn/nn.h"

namespace weft::llama {

class Model final : public nn::ConfiguredModel<Config> {
 public:
  explicit Model(const Config& config, std::source_location loc = std::source_location::current());

 private:
  Tensor hidden(const Tensor& tokens, const nn::KvCache* cache) const override;

  std::vector<nn::TransformerBlock> blocks_;
  nn::RMSNorm norm_;
};

}  // namespace weft::llama
