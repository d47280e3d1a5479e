// GPT: learned positions, pre-norm blocks, and one projection for queries, keys and values (Radford et al. 2019).
#pragma once
#include "models/gpt/config.h"
#include "models/nn/nn.h"

namespace weft::gpt {

class Model final : public nn::ConfiguredModel<Config> {
 public:
  explicit Model(const Config& config, std::source_location loc = std::source_location::current());

 private:
  Tensor hidden(const Tensor& tokens, const nn::KvCache* cache) const override;
  nn::Embedding pos_;
  nn::Dropout drop_;
  std::vector<nn::TransformerBlock> blocks_;
  nn::Norm norm_;
};

}  // namespace weft::gpt
