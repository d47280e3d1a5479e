// GPT: learned positions, pre-norm blocks, one projection for queries, keys and values (Radford et al. 2019).
#pragma once
#include <optional>

#include "models/gpt/config.h"
#include "models/nn/nn.h"

namespace weft::gpt {

class Model final : public nn::LanguageModel {
 public:
  explicit Model(const Config& config);
  Tensor logits(const Tensor& tokens) const override;
  Tensor logits(const Tensor& tokens, const nn::KvCache& cache) const override;

  std::string family() const override { return "gpt"; }
  nn::ConfigMap config() const override { return nn::to_map(config_); }
  int64_t vocab() const override { return config_.vocab; }
  int64_t context() const override { return config_.context; }
  nn::KvCacheShape cache_shape() const override;
  double flops_per_token(int64_t length) const override;

 private:
  Tensor forward(const Tensor& tokens, const Tensor& positions, const nn::AttentionContext& context) const;

  Config config_;
  nn::Embedding tok_, pos_;
  nn::Dropout drop_;
  std::vector<nn::TransformerBlock> blocks_;
  nn::Norm norm_;
  std::optional<nn::Linear> head_;  // none if tied
};

}  // namespace weft::gpt
