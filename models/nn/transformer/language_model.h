// LanguageModel: the interface of a model for training, generation and scoring. ConfiguredModel implements the parts
// that follow from a configuration. ModelFamily makes the models of one family.
#pragma once
#include <cmath>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "framework/dispatch/state/state.h"
#include "models/nn/config_map.h"
#include "models/nn/layers/embedding.h"
#include "models/nn/layers/linear.h"
#include "models/nn/module.h"
#include "models/nn/transformer/attention.h"
#include "models/nn/transformer/kv_cache.h"
#include "ops/core/products/dot.h"

namespace weft::nn {

/// f32 scalars unless noted. E experts, L layers with experts; models without experts return zeros and empty tensors.
struct LossOut {
  Tensor loss;           // ce + aux: differentiate this loss
  Tensor ce;             // mean cross-entropy in nats
  Tensor aux;            // sum of the auxiliary losses, each times its coefficient
  Tensor expert_load;    // f32 [E]: share of the routed choices by expert, over all layers
  Tensor dropped;        // f32 [L]: share of the routed choices that exceeded an expert's capacity
  Tensor expert_counts;  // i64 [L, E]: routed choices; add them up over micro-batches for update_balance
};

/// The share of a part, such as a microbatch, in a batch. The losses of the parts then sum to the loss of the batch,
/// even if the parts contain different numbers of counted targets. The default is the whole batch.
struct BatchShare {
  Tensor targets = {};  // 0-d: number of counted targets of the whole batch
  double rows = 1;      // share of the batch's rows
  /// The share of one of `parts` equal parts of a batch with these targets.
  static BatchShare of(int64_t parts, const Tensor& targets);
};

class LanguageModel : public Module {
 public:
  /// tokens[B, T] (integers) -> logits [B, T, vocab] in the compute dtype; T is at most context().
  Tensor logits(const Tensor& tokens) const;
  /// The logits of T tokens that follow the tokens in the cache. Appends the tokens to the cache.
  Tensor logits(const Tensor& tokens, const KvCache& cache) const;
  /// The logits of the last token only: [B, vocab].
  Tensor next_logits(const Tensor& tokens, const KvCache& cache) const;
  /// The same for tokens that end with padding after the first `count` tokens (0-d i64, at least 1). The cache needs
  /// room for the padding, which later tokens overwrite.
  Tensor next_logits(const Tensor& tokens, const Tensor& count, const KvCache& cache) const;
  /// Mean cross-entropy against targets[B, T], without targets of -100, and the auxiliary losses of the family. For a
  /// part of a batch, the result is its share of the batch's loss; auxiliary losses depend on the part's tokens alone.
  virtual LossOut loss(const Tensor& tokens, const Tensor& targets, const BatchShare& share = {}) const;
  /// Balances the experts by the counts of a whole step. Call it in the step after computing gradients.
  virtual void update_balance(const Tensor& expert_counts) const {}

  virtual std::string family() const = 0;  // its name, such as "gpt"
  virtual ConfigMap config() const = 0;
  virtual int64_t vocab() const = 0;
  virtual int64_t context() const = 0;
  virtual KvCacheShape cache_shape() const = 0;  // cache of batch 1 and capacity context()
  /// Model FLOPs of the forward and backward pass for one token of a sequence of `length`: training_flops
  /// (model_flops.h) of logits(). Nothing is computed.
  double flops_per_token(int64_t length) const;

  /// The device of the parameters.
  Device device() const { return parameters().front().type().device; }
  /// A cache for `batch` texts of `capacity` tokens, in the dtype of the activations, on the device of the parameters.
  KvCache make_cache(int64_t batch, int64_t capacity) const;
  /// Sets the dtype of the activations, to which layers convert their weights; std::nullopt: the dtype of the weights.
  void set_compute_dtype(std::optional<DType> dtype) { compute_dtype_ = dtype; }

 protected:
  /// tokens[B, T] -> the input of the head [B, T, dim]. If there is a cache, the T tokens follow the cached tokens, and
  /// the caller advances the cache.
  virtual Tensor hidden(const Tensor& tokens, const KvCache* cache) const = 0;
  /// hidden() -> logits.
  virtual Tensor head(const Tensor& x) const = 0;

  /// The cross-entropy of loss().
  static Tensor cross_entropy_of(const Tensor& logits, const Tensor& targets, const BatchShare& share);
  /// An embedding in the compute dtype.
  Tensor in_compute_dtype(const Tensor& x) const { return compute_dtype_ ? x.to(*compute_dtype_) : x; }
  /// i64 [T]: the positions of the tokens, for hidden().
  Tensor positions(const Tensor& tokens, const KvCache* cache) const;
  /// The rows [T, dim] of `table` at positions().
  Tensor learned_positions(const Embedding& table, const Tensor& positions, const KvCache* cache) const;
  void check_tokens(const Tensor& tokens) const;

 private:
  std::optional<DType> compute_dtype_;
};

/// The number of heads of keys and values.
template <class Config>
int64_t kv_heads_of(const Config& config) {
  if constexpr (requires { config.kv_heads; })
    return config.kv_heads;
  else
    return config.heads;
}

/// The size of a head.
template <class Config>
int64_t head_dim_of(const Config& config) {
  if constexpr (requires { config.head_dim; })
    if (config.head_dim > 0) return config.head_dim;
  return config.dim / config.heads;
}

/// `config` unchanged, if a model can have it. Throws, naming the field and its allowed values, for other values.
template <class Config>
const Config& checked_model(const Config& config) {
  checked(config);
  const int64_t kv_heads = kv_heads_of(config);
  bool needs_multiple = true;
  if constexpr (requires { config.head_dim; }) needs_multiple = config.head_dim == 0;
  WEFT_CHECK(!needs_multiple || config.dim % config.heads == 0, "config: field 'dim' is '", config.dim,
             "'; need a multiple of heads, ", config.heads);
  WEFT_CHECK(config.heads % kv_heads == 0, "config: field 'kv_heads' is '", kv_heads, "'; need a divisor of heads, ",
             config.heads);
  return config;
}

/// A LanguageModel with a configuration `Config`, which names the family (kFamily) and has the fields vocab, context,
/// layers, heads, dim and tied, and kv_heads if it may differ from heads. The model contains the embedding of tokens
/// and the head; if they are tied, both use the embedding's weight.
template <class Config>
class ConfiguredModel : public LanguageModel {
 public:
  std::string family() const override { return Config::kFamily; }
  ConfigMap config() const override { return to_map(config_); }
  int64_t vocab() const override { return config_.vocab; }
  int64_t context() const override { return config_.context; }
  KvCacheShape cache_shape() const override {
    return {.layers = config_.layers, .kv_heads = kv_heads(), .capacity = config_.context, .head_dim = head_dim()};
  }

 protected:
  /// The standard deviation of initial weights, and of weights whose result is added to the residual stream.
  static constexpr double kStd = 0.02;
  static double residual_std(const Config& c) { return kStd / ::std::sqrt(2.0 * static_cast<double>(c.layers)); }

  ConfiguredModel(const Config& config, std::source_location loc)
      : config_(valid(config, loc)), tok_(config.vocab, config.dim, {.std = kStd}, loc) {
    register_module("tok", tok_);
  }
  /// Registers the blocks, the norm and the head. Call it last in a constructor.
  template <class Block>
  void register_blocks(const std::vector<Block>& blocks, const Module& norm) {
    register_modules("blocks", blocks);
    register_module("norm", norm);
    if (!config_.tied)
      register_module("head", head_.emplace(config_.dim, config_.vocab, LinearOptions{.bias = false, .std = kStd}));
  }
  Tensor head(const Tensor& x) const override { return head_ ? (*head_)(x) : linear(x, tok_.weight); }
  int64_t head_dim() const { return head_dim_of(config_); }

  Config config_;
  Embedding tok_;

 private:
  std::optional<Linear> head_;  // empty if tied

  int64_t kv_heads() const { return kv_heads_of(config_); }

  static const Config& valid(const Config& config, std::source_location loc) {
    internal::LineScope line(loc);
    return checked_model(config);
  }
};

/// The models of one family, for programs.
struct ModelFamily {
  std::string name;
  std::string default_preset;  // trains on the embedded text
  std::vector<std::string> presets;
  bool has_experts = false;  // its losses report loads of experts
  /// The configuration of a preset; throws, listing the presets, for another name.
  std::function<ConfigMap(const std::string& preset)> preset;
  /// `config` with these fields, in the form of to_map(). Throws, naming the field and its allowed values, for an
  /// unknown field and for a value that is not allowed.
  std::function<ConfigMap(const ConfigMap& config, const ConfigMap& fields)> with_fields;
  /// A model with lazy parameters, which need no memory before they are read.
  std::function<std::unique_ptr<LanguageModel>(const ConfigMap& config)> make;
};

/// The configuration of this name; throws, listing the names, if there is none.
template <class Config>
const Config& find_preset(const std::vector<std::pair<std::string, Config>>& table, const std::string& name) {
  std::string names;
  for (const auto& [key, config] : table) {
    if (key == name) return config;
    names += (names.empty() ? "" : ", ") + key;
  }
  WEFT_CHECK_AS(kNotFound, false, Config::kFamily, ": no configuration '", name, "'; need one of ", names);
  return table.front().second;
}

/// A family from its table of presets. The first preset is the default.
template <class Model, class Config>
ModelFamily make_family(const std::vector<std::pair<std::string, Config>>& table) {
  ModelFamily f{.name = Config::kFamily, .default_preset = table.front().first};
  for (const auto& [key, config] : table) f.presets.push_back(key);
  f.has_experts = to_map(table.front().second).contains("experts");
  f.preset = [&table](const std::string& key) { return to_map(find_preset(table, key)); };
  f.with_fields = [](const ConfigMap& config, const ConfigMap& fields) {
    return to_map(checked_model(from_map<Config>(fields, from_map<Config>(config))));
  };
  f.make = [](const ConfigMap& map) { return std::make_unique<Model>(from_map<Config>(map)); };
  return f;
}

/// The same, once for each Model.
template <class Model, class Config>
const ModelFamily& family_of(const std::vector<std::pair<std::string, Config>>& table) {
  static const auto* f = new ModelFamily(make_family<Model>(table));
  return *f;
}

}  // namespace weft::nn
