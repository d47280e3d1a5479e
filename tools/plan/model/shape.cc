#include "tools/plan/model/shape.h"

#include <algorithm>
#include <map>

#include "framework/base/error.h"
#include "models/hf/families.h"
#include "models/weights/config.h"
#include "tools/plan/model/capture_shape.h"

namespace weft::planner {
namespace {

double d(int64_t n) { return static_cast<double>(n); }

// Layers with equal parameters are equal. The number of layers like each of the first layers of a model: 0 for a layer
// like an earlier one.
std::vector<int64_t> layers_of_kinds(const nn::LanguageModel& model) {
  std::map<std::string, std::string> kinds;  // layer -> the rest of the names, and shapes
  std::vector<std::string> order;
  for (const auto& [name, parameter] : model.named_parameters())
    if (const std::string layer = layer_of(name); !layer.empty()) {
      if (order.empty() || order.back() != layer) order.push_back(layer);
      kinds[layer] += str_cat(name.substr(layer.size()), parameter.type().shape, " ");
    }
  std::vector<int64_t> layers;
  std::map<std::string, size_t> first;
  for (size_t i = 0; i < order.size(); ++i) {
    const size_t at = first.try_emplace(kinds[order[i]], i).first->second;
    layers.resize(std::max(layers.size(), at + 1));
    ++layers[at];
  }
  return layers;
}

}  // namespace

double Product::weights() const { return d(std::max<int64_t>(1, experts)) * d(in) * d(out); }

int64_t Block::experts() const {
  int64_t n = 0;
  for (const Product& p : products) n = std::max(n, p.experts);
  return n;
}

int64_t Block::expert_parameters() const {
  int64_t n = 0;
  for (const Product& p : products) n += p.experts * p.in * p.out;
  return n;
}

double Block::multiplying_parameters() const {
  double n = 0;
  for (const Product& p : products) n += d(p.rows) * d(p.in) * d(p.out);
  return n;
}

int64_t ModelShape::layers() const {
  int64_t n = 0;
  for (const Block& b : blocks) n += b.layers;
  return n;
}

int64_t ModelShape::experts() const {
  int64_t n = 0;
  for (const Block& b : blocks) n = std::max(n, b.experts());
  return n;
}

int64_t ModelShape::top_k() const {
  int64_t n = 0;
  for (const Block& b : blocks)
    for (const Product& p : b.products)
      if (p.experts) n = std::max(n, p.rows);
  return n;
}

int64_t ModelShape::parameters() const {
  int64_t n = (tied ? 1 : 2) * table_parameters() + outer;
  for (const Block& b : blocks) n += b.layers * b.parameters;
  return n;
}

int64_t ModelShape::expert_parameters() const {
  int64_t n = 0;
  for (const Block& b : blocks) n += b.layers * b.expert_parameters();
  return n;
}

double ModelShape::multiplying_parameters() const {
  double n = d(table_parameters());
  for (const Block& b : blocks) n += d(b.layers) * b.multiplying_parameters();
  return n;
}

double ModelShape::used_share() const {
  if (experts() == 0) return 1;
  return 1 - d(expert_parameters()) / d(parameters()) * d(experts() - top_k()) / d(experts());
}

double ModelShape::training_flops(int64_t length) const {
  double attended = 0;
  for (const Block& b : blocks) attended += d(b.layers) * d(b.attended);
  return 6 * multiplying_parameters() + 6 * attended * d(length + 1);
}

double ModelShape::kv_bytes(double bytes) const { return 2 * d(layers() * kv_heads * head_dim) * bytes; }

ModelShape ModelShape::with_layers(int64_t n) const {
  ModelShape s = *this;
  s.blocks.clear();
  for (const Block& b : blocks) {
    if (n <= 0) break;
    s.blocks.push_back(b);
    s.blocks.back().layers = &b == &blocks.back() ? n : std::min(n, b.layers);
    n -= s.blocks.back().layers;
  }
  return s;
}

ModelShape ModelShape::with_kv_heads(int64_t n) const {
  ModelShape s = *this;
  s.kv_heads = n;
  for (Block& b : s.blocks)
    for (Product& p : b.products) {
      if (p.kv == 0) continue;
      const int64_t less = p.kv - 2 * n * head_dim;
      p.kv -= less;
      p.out -= less;
      b.parameters -= less * (p.in + (p.bias ? 1 : 0));
    }
  return s;
}

ModelShape shape_of(const std::string& name, const std::string& family, const nn::ConfigMap& config) {
  const nn::ModelFamily& f = family_named(family, "model: family");
  // One layer of each kind is captured, and the layer after it.
  std::vector<int64_t> layers = layers_of_kinds(*f.make(config));
  layers.push_back(0);
  const auto model = f.make(f.with_fields(config, {{"layers", std::to_string(layers.size())}}));
  ModelShape s = captured_shape(
      *model, [&](const Tensor& tokens) { return model->logits(tokens); }, model->context(), layers);
  s.name = name;
  s.family = family;
  return s;
}

ModelShape hf_shape(std::string_view text, const std::string& what) {
  const weights::HfConfig c = weights::read_config(text, what, weights::For::kPlan);
  return weights::with_names(c, what, [&] {
    nn::ConfigMap config = c.config;
    if (const nn::ModelFamily* f = find_family(c.family->program))
      config = f->with_fields(f->preset(f->default_preset), c.config);
    return shape_of(what, c.family->program, config);
  });
}

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const nn::ModelFamily* f : model_families()) names.insert(names.end(), f->presets.begin(), f->presets.end());
  return names;
}

ModelShape preset_shape(const std::string& name, const nn::ConfigMap& fields) {
  for (const nn::ModelFamily* f : model_families())
    for (const std::string& preset : f->presets)
      if (preset == name) return shape_of(name, f->name, f->with_fields(f->preset(name), fields));
  std::string names;
  for (const std::string& n : preset_names()) names += str_cat(names.empty() ? "" : ", ", n);
  internal::fail(Code::kInvalidArgument,
                 str_cat("model: got '", name.substr(0, 60), "'; need one of ", names, ", or a config.json"));
}

}  // namespace weft::planner
