// Llama: RMSNorm, rotary positions, grouped-query attention, SwiGlu (Touvron et al. 2023).
#pragma once
#include <optional>

#include "models/llama/config.h"
#include "models/nn/nn.h"

namespace weft::llama {

class Model final : public nn::LanguageModel {
 public:
  explicit Model(const Config& config);
  Tensor logits(const Tensor& tokens) const override;
  Tensor logits(const Tensor& tokens, const nn::KvCache& cache) const override;

  std::string family() const override { return "llama"; }
  nn::ConfigMap config() const override { return nn::to_map(config_); }
  int64_t vocab() const override { return config_.vocab; }
  int64_t context() const override { return config_.context; }
  nn::KvCacheShape cache_shape() const override;
  double flops_per_token(int64_t length) const override;

 private:
  Tensor forward(const Tensor& tokens, const nn::AttentionContext& context) const;
  RopeTables rope(const Tensor& positions) const;
  int64_t head_dim() const { return config_.dim / config_.heads; }

  Config config_;
  nn::Embedding tok_;
  std::vector<nn::TransformerBlock> blocks_;
  nn::RMSNorm norm_;
  std::optional<nn::Linear> head_;  // none if tied
};

}  // namespace weft::llama
