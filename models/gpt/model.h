// GPT: learned positions, pre-norm blocks, and one projection for queries, keys and values (Radford et al. 2019).
#pragma once
#include "models/gpt/config.h"
#include "models/nn/nn.h"

namespace weft::gpt {

class Model final : public nn::ConfiguredModel<Config> {
 public:
  explicit Model(const Config& config);

 protected:
  Tensor hidden(const Tensor& tokens, const nn::KvCache* cache) const override;
  int64_t feed_forward_weights() const override { return config_.layers * 2 * config_.dim * config_.ffn; }

 private:
  nn::Embedding pos_;
  nn::Dropout drop_;
  std::vector<nn::TransformerBlock> blocks_;
  nn::Norm norm_;
};

}  // namespace weft::gpt
