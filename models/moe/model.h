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
  std::optional<nn::MoE> moe;     // a block has either experts
  std::optional<nn::SwiGlu> ffn;  // or one feed-forward layer
  /// `std` and `residual_std` are standard deviations of initial weights (see nn::BlockOptions).
  Block(const Config& config, bool dense, double std, double residual_std);
  /// A block with experts appends the result of its MoE layer to `routed`.
  Tensor operator()(const Tensor& x, const nn::AttentionContext& context, int64_t layer,
                    std::vector<nn::MoEOut>& routed) const;
};

class Model final : public nn::ConfiguredModel<Config> {
 public:
  explicit Model(const Config& config, std::source_location loc = std::source_location::current());
  nn::LossOut loss(const Tensor& tokens, const Tensor& targets, const nn::BatchShare& share = {}) const override;
  void update_balance(const Tensor& expert_counts) const override;

 private:
  Tensor hidden(const Tensor& tokens, const nn::KvCache* cache) const override;
  Tensor blocks(const Tensor& tokens, const nn::KvCache* cache, std::vector<nn::MoEOut>& routed) const;

  std::optional<nn::Embedding> pos_;  // empty with rotary positions
  std::vector<Block> blocks_;
  nn::RMSNorm norm_;
};

}  // namespace weft::moe
