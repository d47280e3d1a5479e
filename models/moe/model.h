// A transformer whose feed-forward layers are mixtures of experts (Mixtral, DeepSeek).
#pragma once
#include <optional>

#include "models/moe/config.h"
#include "models/nn/nn.h"

namespace weft::moe {

/// h = x + attn(norm1(x)); h + (moe or ffn)(norm2(h)).
struct Block : nn::Module {
  nn::RMSNorm norm1;
  nn::Attention attn;
  nn::RMSNorm norm2;
  std::optional<nn::MoE> moe;  // one of the two
  std::optional<nn::SwiGlu> ffn;
  Block(const Config& config, bool dense);
  /// Appends what the router did to `routed`.
  Tensor operator()(const Tensor& x, const nn::AttentionContext& context, int64_t layer,
                    std::vector<nn::MoEOut>& routed) const;
};

class Model final : public nn::LanguageModel {
 public:
  explicit Model(const Config& config);
  Tensor logits(const Tensor& tokens) const override;
  Tensor logits(const Tensor& tokens, const nn::KvCache& cache) const override;
  nn::LossOut loss(const Tensor& tokens, const Tensor& targets) const override;
  void update_balance(const Tensor& expert_counts) const override;

  std::string family() const override { return "moe"; }
  nn::ConfigMap config() const override { return nn::to_map(config_); }
  int64_t vocab() const override { return config_.vocab; }
  int64_t context() const override { return config_.context; }
  nn::KvCacheShape cache_shape() const override;
  double flops_per_token(int64_t length) const override;

 private:
  Tensor forward(const Tensor& tokens, const nn::KvCache* cache, std::vector<nn::MoEOut>& routed) const;
  int64_t head_dim() const { return config_.dim / config_.heads; }

  Config config_;
  nn::Embedding tok_;
  std::optional<nn::Embedding> pos_;  // none with rotary positions
  std::vector<Block> blocks_;
  nn::RMSNorm norm_;
  std::optional<nn::Linear> head_;  // none if tied
};

}  // namespace weft::moe
