// ModelShape: the sizes of a transformer that its cost follows from. It comes from a preset of a family in models/, or
// from a Hugging Face config.json (hf_config.h).
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "models/nn/config_map.h"

namespace weft::planner {

struct ModelShape {
  std::string name;    // name of the preset or file
  std::string family;  // gpt, llama or moe
  int64_t vocab = 0, context = 0, layers = 0, dim = 0, heads = 0, kv_heads = 0, head_dim = 0;
  int64_t ffn = 0;          // hidden size of a dense layer
  bool gated = true;        // three matrices (SwiGLU) instead of two
  bool tied = false;        // the head shares the embedding
  bool bias = false;        // biases in all linear layers and norms
  bool qkv_bias = false;    // biases of queries, keys and values alone
  bool qk_norm = false;     // norms of queries and keys by head
  bool layer_norm = false;  // two values per channel with `bias`; else RMSNorm, one value
  int64_t positions = 0;    // rows of a learned table
  int64_t experts = 0, top_k = 0, expert_ffn = 0, shared_ffn = 0;
  int64_t dense_layers = 0;  // number of first layers without experts

  int64_t expert_layers() const { return experts ? layers - dense_layers : 0; }
  int64_t attention_parameters() const;  // attention of a layer, with its norms
  int64_t dense_parameters() const;      // feed-forward part of a dense layer
  int64_t router_parameters() const;     // router and shared expert of a layer
  int64_t expert_parameters() const;     // all experts of a layer
  int64_t table_parameters() const { return vocab * dim; }
  int64_t parameters() const;
  /// The parameters that multiply a token: without embedding look-ups, positions, norms and biases, and only chosen
  /// experts.
  int64_t multiplying_parameters() const;
  /// The share of the parameters that a token uses: 1 without experts.
  double used_share() const;
  /// Model FLOPs of a training step for each token of causal sequences (models/nn/transformer/model_flops.h).
  double training_flops(int64_t length) const;
  /// Bytes of the keys and values of one token, with elements of `bytes`.
  double kv_bytes(double bytes) const;
};

/// The shape of a configuration of gpt, llama or moe. Throws InvalidArgument for another family.
ModelShape shape_of(const std::string& name, const std::string& family, const nn::ConfigMap& config);
/// The shape of a preset of any family. Throws InvalidArgument, naming the presets, for another name.
ModelShape preset_shape(const std::string& name);
std::vector<std::string> preset_names();

}  // namespace weft::planner
