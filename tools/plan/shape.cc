#include "tools/plan/shape.h"

#include "framework/base/error.h"
#include "models/gpt/config.h"
#include "models/llama/config.h"
#include "models/moe/config.h"

namespace weft::planner {
namespace {

const std::vector<const nn::ModelFamily*>& families() {
  static const auto* all = new std::vector<const nn::ModelFamily*>{&gpt::family(), &llama::family(), &moe::family()};
  return *all;
}

// The fields of all families' configurations.
template <class Config>
ModelShape common(const std::string& name, const Config& c) {
  ModelShape s{.name = name,
               .family = Config::kFamily,
               .vocab = c.vocab,
               .context = c.context,
               .layers = c.layers,
               .dim = c.dim,
               .heads = c.heads,
               .kv_heads = c.heads,
               .head_dim = c.dim / c.heads,
               .ffn = c.ffn,
               .tied = c.tied};
  return s;
}

}  // namespace

int64_t ModelShape::attention_parameters() const {
  const int64_t q = heads * head_dim, kv = 2 * kv_heads * head_dim, norm = layer_norm && bias ? 2 * dim : dim;
  int64_t n = dim * (q + kv) + q * dim + 2 * norm;
  if (bias) n += q + kv + dim;
  if (qkv_bias) n += q + kv;
  if (qk_norm) n += 2 * head_dim;
  return n;
}

int64_t ModelShape::dense_parameters() const { return (gated ? 3 : 2) * dim * ffn + (bias ? ffn + dim : 0); }
int64_t ModelShape::router_parameters() const { return dim * experts + 3 * dim * shared_ffn; }
int64_t ModelShape::expert_parameters() const { return experts * 3 * dim * expert_ffn; }

int64_t ModelShape::parameters() const {
  return (tied ? 1 : 2) * table_parameters() + positions * dim + (layer_norm && bias ? 2 * dim : dim) +
         layers * attention_parameters() + (layers - expert_layers()) * dense_parameters() +
         expert_layers() * (router_parameters() + expert_parameters());
}

int64_t ModelShape::multiplying_parameters() const {
  const int64_t q = heads * head_dim, attention = dim * (2 * q + 2 * kv_heads * head_dim);
  return table_parameters() + layers * attention + (layers - expert_layers()) * (gated ? 3 : 2) * dim * ffn +
         expert_layers() * (router_parameters() + top_k * 3 * dim * expert_ffn);
}

double ModelShape::used_share() const {
  if (experts == 0) return 1;
  const double all = static_cast<double>(parameters()),
               of_experts = static_cast<double>(expert_layers()) * static_cast<double>(expert_parameters());
  return 1 - of_experts / all * static_cast<double>(experts - top_k) / static_cast<double>(experts);
}

double ModelShape::training_flops(int64_t length) const {
  return 6.0 * static_cast<double>(multiplying_parameters()) +
         6.0 * static_cast<double>(layers * heads * head_dim) * static_cast<double>(length + 1);
}

double ModelShape::kv_bytes(double bytes) const {
  return 2.0 * static_cast<double>(layers * kv_heads * head_dim) * bytes;
}

ModelShape shape_of(const std::string& name, const std::string& family, const nn::ConfigMap& config) {
  if (family == "gpt") {
    const auto c = nn::from_map<gpt::Config>(config);
    ModelShape s = common(name, c);
    s.gated = false;
    s.bias = c.bias;
    s.layer_norm = !c.rms_norm;
    s.positions = c.context;
    return s;
  }
  if (family == "llama") {
    const auto c = nn::from_map<llama::Config>(config);
    ModelShape s = common(name, c);
    s.kv_heads = c.kv_heads;
    return s;
  }
  WEFT_CHECK(family == "moe", "model: family is '", family, "'; need gpt, llama or moe");
  const auto c = nn::from_map<moe::Config>(config);
  ModelShape s = common(name, c);
  s.kv_heads = c.kv_heads;
  s.positions = c.rope ? 0 : c.context;
  s.experts = c.experts;
  s.top_k = c.top_k;
  s.expert_ffn = c.ffn;
  s.shared_ffn = c.shared_ffn;
  s.dense_layers = c.dense_layers;
  s.ffn = c.dense_ffn;
  return s;
}

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const nn::ModelFamily* f : families()) names.insert(names.end(), f->presets.begin(), f->presets.end());
  return names;
}

ModelShape preset_shape(const std::string& name) {
  for (const nn::ModelFamily* f : families())
    for (const std::string& preset : f->presets)
      if (preset == name) return shape_of(name, f->name, f->preset(name));
  std::string names;
  for (const std::string& n : preset_names()) names += str_cat(names.empty() ? "" : ", ", n);
  internal::fail(Code::kInvalidArgument,
                 str_cat("model: got '", name.substr(0, 60), "'; need one of ", names, ", or a config.json"));
}

}  // namespace weft::planner
