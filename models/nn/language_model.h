// LanguageModel: what the shared training loop, generation and scoring know of a model family. ModelFamily makes them.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "models/nn/config_map.h"
#include "models/nn/kv_cache.h"
#include "models/nn/module.h"

namespace weft::nn {

/// All 0-d f32 unless said; zeros (or empty) for models without experts. E experts, L layers that have them.
struct LossOut {
  Tensor loss;           // what is differentiated: ce + aux
  Tensor ce;             // mean cross-entropy in nats
  Tensor aux;            // auxiliary losses with their coefficients
  Tensor expert_load;    // f32 [E]: share of the routed choices by expert, over all layers
  Tensor dropped;        // share of the routed choices that found no room
  Tensor expert_counts;  // i64 [L, E]: add them up over micro-batches for update_balance
};

class LanguageModel : public Module {
 public:
  /// tokens[B, T] (integers) -> logits [B, T, vocab] in the compute dtype; T at most context().
  virtual Tensor logits(const Tensor& tokens) const = 0;
  /// The same for the next T tokens after those in the cache, which moves on by T.
  virtual Tensor logits(const Tensor& tokens, const KvCache& cache) const = 0;
  /// Mean cross-entropy against targets[B, T], of which -100 does not count, and what else the family adds.
  virtual LossOut loss(const Tensor& tokens, const Tensor& targets) const;
  /// Balances experts by the counts of a whole step; call it in the step, after the gradients. Else nothing.
  virtual void update_balance(const Tensor& expert_counts) const {}

  virtual std::string family() const = 0;  // "gpt", "llama", "moe"
  virtual ConfigMap config() const = 0;
  virtual int64_t vocab() const = 0;
  virtual int64_t context() const = 0;
  virtual KvCacheShape cache_shape() const = 0;  // its batch and capacity are 1 and context()
  /// Forward and backward of one token in a row of `length`: 6 per weight of the matrices that the token meets (no
  /// table look-up; of experts those chosen) and 12 L H D length of attention, causal or not (Chowdhery et al. 2022,
  /// appendix B).
  virtual double flops_per_token(int64_t length) const = 0;

  /// Where the parameters lie.
  Device device() const { return parameters().front().type().device; }
  /// For `batch` texts of `capacity` tokens, where the parameters lie.
  KvCache make_cache(int64_t batch, int64_t capacity) const;
  /// Activations are computed in this dtype (weights are converted where they are used); unset: the weights' own.
  void set_compute_dtype(std::optional<DType> dtype) { compute_dtype_ = dtype; }

 protected:
  /// An embedding in the compute dtype.
  Tensor in_compute_dtype(const Tensor& x) const { return compute_dtype_ ? x.to(*compute_dtype_) : x; }
  void check_tokens(const Tensor& tokens) const;

 private:
  std::optional<DType> compute_dtype_;
};

/// How programs find the models of a family.
struct ModelFamily {
  std::string name;
  std::string default_preset;  // for the text that ships with Weft
  std::vector<std::string> presets;
  /// The configuration of a preset; throws, listing the presets, for another name.
  std::function<ConfigMap(const std::string& preset)> preset;
  /// A model whose parameters are lazy: its size costs nothing yet.
  std::function<std::unique_ptr<LanguageModel>(const ConfigMap& config)> make;
};

/// The configuration of this name; throws, listing the names, if there is none.
template <class Config>
const Config& find_preset(const std::vector<std::pair<std::string, Config>>& table, const std::string& name,
                          const char* family) {
  std::string names;
  for (const auto& [key, config] : table) {
    if (key == name) return config;
    names += (names.empty() ? "" : ", ") + key;
  }
  WEFT_CHECK_AS(kNotFound, false, family, ": no configuration '", name, "'; there are ", names);
  return table.front().second;
}

/// A family from its table of presets, of which the first is the default.
template <class Config, class Model>
ModelFamily make_family(const char* name, const std::vector<std::pair<std::string, Config>>& table) {
  ModelFamily f{.name = name, .default_preset = table.front().first};
  for (const auto& [key, config] : table) f.presets.push_back(key);
  f.preset = [&table, name](const std::string& key) { return to_map(find_preset(table, key, name)); };
  f.make = [](const ConfigMap& map) { return std::make_unique<Model>(from_map<Config>(map)); };
  return f;
}

}  // namespace weft::nn
