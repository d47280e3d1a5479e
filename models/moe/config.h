// Configurations of the mixture-of-experts family, by name.
#pragma once
#include "models/nn/language_model.h"

namespace weft::moe {

struct Config {
  static constexpr const char* kFamily = "moe";
  int64_t vocab = 256, context = 128, layers = 4, heads = 4, kv_heads = 4, dim = 128;
  bool rope = true;  // rotary positions; false: learned positions
  double rope_theta = 10000;
  double norm_eps = 1e-5;
  bool tied = false;  // the head shares the token embedding
  int64_t experts = 8, top_k = 2;
  int64_t ffn = 256;              // hidden size of an expert
  int64_t shared_ffn = 0;         // hidden size of the expert for every token; 0: no such expert
  int64_t dense_layers = 0;       // number of first layers with a feed-forward layer instead of experts
  int64_t dense_ffn = 0;          // its hidden size
  std::string score = "softmax";  // of the router: softmax or sigmoid
  bool normalize = true;          // the weights of a token's experts sum to 1
  double route_scale = 1;         // factor of the weights
  double capacity_factor = 0;     // training: capacity of an expert relative to an even load; 0: drop nothing
  double aux_loss = 0.01;         // coefficient of the load-balance loss
  double z_loss = 0;              // coefficient of the router's z-loss
  double bias_rate = 0;           // step size of the balancing bias; 0: no bias

  template <class F>
  void fields(F&& f) {
    f("vocab", vocab), f("context", context), f("layers", layers), f("heads", heads), f("kv_heads", kv_heads),
        f("dim", dim);
    f("rope", rope), f("rope_theta", rope_theta), f("norm_eps", norm_eps), f("tied", tied), f("experts", experts),
        f("top_k", top_k);
    f("ffn", ffn), f("shared_ffn", shared_ffn), f("dense_layers", dense_layers), f("dense_ffn", dense_ffn),
        f("score", score);
    f("normalize", normalize), f("route_scale", route_scale), f("capacity_factor", capacity_factor),
        f("aux_loss", aux_loss);
    f("z_loss", z_loss), f("bias_rate", bias_rate);
  }
};

/// moe_shakespeare, whose tokens are bytes; moe_small; moe_tiny; mixtral-8x7b (Jiang et al. 2024); deepseek-moe-16b
/// (Dai et al. 2024).
Config preset(const std::string& name);
const nn::ModelFamily& family();

}  // namespace weft::moe
