// Configurations of the mixture-of-experts family, by name.
#pragma once
#include "models/nn/transformer/expert_choice.h"
#include "models/nn/transformer/language_model.h"

namespace weft::moe {

struct Config {
  static constexpr const char* kFamily = "moe";
  int64_t vocab = 256, context = 128, layers = 4, heads = 4, kv_heads = 4, dim = 128;
  bool rope = true;  // rotary positions; false: learned positions
  nn::RotaryOptions rotary;
  int64_t head_dim = 0;   // 0: dim / heads
  bool qkv_bias = false;  // biases of queries, keys and values
  bool qk_norm = false;   // norms of each head's queries and keys (Qwen 3)
  double norm_eps = 1e-5;
  bool tied = false;  // the head shares the token embedding
  int64_t experts = 8, top_k = 2;
  int64_t ffn = 256;              // hidden size of an expert
  int64_t shared_ffn = 0;         // hidden size of the expert for every token; 0: no such expert
  int64_t dense_layers = 0;       // number of first layers with a feed-forward layer instead of experts
  int64_t dense_ffn = 0;          // hidden size of these feed-forward layers
  std::string score = "softmax";  // scores of the router: softmax or sigmoid
  bool normalize = true;          // the weights of a token's experts sum to 1
  double route_scale = 1;         // factor of the weights
  double capacity_factor = 0;     // training: capacity of an expert relative to an even load; 0: drop nothing
  double aux_loss = 0.01;         // coefficient of the load-balance loss
  double z_loss = 0;              // coefficient of the router's z-loss
  double bias_rate = 0;           // step size of the balancing bias; 0: no bias
  std::string route = "learned";  // how tokens choose experts (nn::ExpertChoice)

  template <class F>
  void fields(F&& f) {
    f("vocab", vocab, nn::kVocab), f("context", context, nn::kContext), f("layers", layers, nn::kLayers);
    f("heads", heads, nn::kSize), f("kv_heads", kv_heads, nn::kSize), f("dim", dim, nn::kSize);
    f("rope", rope), rotary.fields(f), f("head_dim", head_dim, nn::kHeadDim);
    f("qkv_bias", qkv_bias), f("qk_norm", qk_norm), f("norm_eps", norm_eps, nn::kPositive);
    f("tied", tied), f("experts", experts, nn::kExperts), f("top_k", top_k, nn::kExperts);
    f("ffn", ffn, nn::kSize), f("shared_ffn", shared_ffn, nn::kSizeOrNone);
    f("dense_layers", dense_layers, nn::kSizeOrNone), f("dense_ffn", dense_ffn, nn::kSizeOrNone);
    f("score", score, nn::Allowed{.words = "softmax,sigmoid"}), f("normalize", normalize);
    f("route_scale", route_scale, nn::kPositive), f("capacity_factor", capacity_factor, nn::kNotNegative);
    f("aux_loss", aux_loss, nn::kNotNegative), f("z_loss", z_loss, nn::kNotNegative);
    f("bias_rate", bias_rate, nn::kNotNegative),
        f("route", route, nn::Allowed{.accepts = nn::ExpertChoice::accepts, .need = nn::ExpertChoice::kNeed});
  }
};

/// moe_shakespeare, whose tokens are bytes; moe_small; moe_tiny; mixtral-8x7b (Jiang et al. 2024); deepseek-moe-16b
/// (Dai et al. 2024).
Config preset(const std::string& name);
const nn::ModelFamily& family();

}  // namespace weft::moe
