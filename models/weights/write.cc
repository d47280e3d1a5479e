#include "models/weights/write.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "framework/io/file.h"
#include "framework/io/json.h"
#include "models/nn/transformer/rotary.h"
#include "models/weights/config.h"
#include "models/weights/json_value.h"
#include "models/weights/pieces.h"

namespace weft::weights {
namespace {

nn::RotaryOptions rotary_of(const nn::ConfigMap& config) {
  nn::RotaryOptions r;
  r.fields([&](const char* name, auto& value, const nn::Allowed& = {}) { io::set_text(config.at(name), value); });
  if (r.factor == 1 && r.attention_factor == 0) r.type = "default";
  return r;
}

// The settings of a type: [name in config.json, value].
std::vector<std::pair<const char*, double>> settings_of(const nn::RotaryOptions& r) {
  std::vector<std::pair<const char*, double>> s;
  if (r.type != "default") s.push_back({"factor", r.factor});
  if (r.type == "llama3") {
    s.push_back({"low_freq_factor", r.low_freq_factor});
    s.push_back({"high_freq_factor", r.high_freq_factor});
  }
  if (r.type == "llama3" || r.type == "yarn")
    s.push_back({"original_max_position_embeddings", static_cast<double>(r.original_context)});
  if (r.type == "yarn") {
    s.push_back({"beta_fast", r.beta_fast});
    s.push_back({"beta_slow", r.beta_slow});
    if (r.attention_factor != 0) s.push_back({"attention_factor", r.attention_factor});
  }
  return s;
}

// A number of a setting: whole numbers without a decimal point.
io::Json number_of(double v) { return json_value(io::text_of(v)); }

// The configuration with one text for equal models: without the fields of training, with the size of a head, and
// without rotary settings that its type does not read.
nn::ConfigMap normal(const Family& family, nn::ConfigMap config) {
  for (const Field& f : family.training) config.erase(f.weft);
  if (const auto it = config.find("head_dim"); it != config.end() && it->second == "0")
    it->second = io::text_of(number(config, "dim") / std::max<int64_t>(1, number(config, "heads")));
  if (config.contains("rope_theta")) {
    const nn::RotaryOptions r = rotary_of(config);
    std::string text = r.type;
    for (const auto& [name, value] : settings_of(r)) text += str_cat(" ", name, " ", io::text_of(value));
    std::erase_if(config, [](const auto& f) { return f.first.starts_with("rope_"); });
    config["rope_theta"] = io::text_of(r.theta);
    config["rope_type"] = text;
  }
  return config;
}

constexpr const char* kTokenIds[] = {"bos_token_id", "eos_token_id", "pad_token_id"};

io::Json json_for(const Family& family, const Kind& kind, const nn::ConfigMap& config, DType dtype) {
  io::Json json = io::Json::object();
  json["architectures"] = {kind.model_class};
  json["model_type"] = kind.model_type;
  const char* name = dtype == kBFloat16 ? "bfloat16" : "float32";
  json["dtype"] = json["torch_dtype"] = name;
  for (const char* id : kTokenIds) json[id] = nullptr;
  for (const std::vector<Field>& fields : {kind.fields, family.training})
    for (const Field& f : fields)
      for (const std::string& hf : f.names()) json[hf] = json_value(config.at(f.weft));
  if (kind.rope_theta > 0) {
    json["head_dim"] = json_value(normal(family, config).at("head_dim"));
    const nn::RotaryOptions r = rotary_of(config);
    io::Json scaling{{"rope_type", r.type}};
    for (const auto& [setting, value] : settings_of(r)) scaling[setting] = number_of(value);
    json["rope_theta"] = number_of(r.theta);
    json["rope_scaling"] = r.type == "default" ? io::Json() : scaling;
    json["rope_parameters"] = scaling;
    json["rope_parameters"]["rope_theta"] = json["rope_theta"];
  }
  return json;
}

constexpr int64_t kMostFile = int64_t{5} << 30;

std::vector<std::pair<std::string, Shape>> shapes_of(const Written& model) {
  std::vector<std::pair<std::string, Shape>> shapes;
  for (const io::NamedView& c : model.cells) shapes.emplace_back(c.name, c.view.shape);
  return shapes;
}

// Tensors in the memory of the host.
class Tensors {
 public:
  /// The values of a tensor: in place if the cell has them in this order and dtype.
  StridedView values(const TensorPlan& plan, const StridedView& cell, DType dtype) {
    StridedView view{cell.data, dtype, plan.shape, contiguous_strides(plan.shape)};
    if (plan.piece.keeps_places() && plan.shape == cell.shape && cell.dtype == dtype) return view;
    view.data = room(plan.shape.numel() * itemsize(dtype));
    copy_tensor(plan, cell, dtype, view.data);
    return view;
  }
  std::byte* room(int64_t bytes) {
    rooms_.emplace_back(new std::byte[static_cast<size_t>(bytes)]);
    return rooms_.back().get();
  }

 private:
  std::vector<std::unique_ptr<std::byte[]>> rooms_;
};

}  // namespace

std::pair<std::string, const Kind*> config_json(const Family& family, const nn::ConfigMap& config, DType dtype) {
  const nn::ConfigMap need = normal(family, config);
  std::string nearest;
  size_t fewest = SIZE_MAX;
  for (const Kind& kind : family.kinds) {
    if (!kind.model_class) continue;
    const std::string text = io::write_json(json_for(family, kind, config, dtype), 2) + "\n";
    const nn::ConfigMap read = normal(family, read_config(text, "config.json", For::kWeights).config);
    size_t differences = 0;
    std::string first;
    for (const auto& [field, value] : need) {
      const auto it = read.find(field);
      if (it != read.end() && it->second == value) continue;
      if (differences++ == 0)
        first = str_cat("config: field '", field, "' is '", value, "'; need ",
                        it == read.end() ? "a model without it" : str_cat("'", it->second, "'"), " for ",
                        kind.model_class, ", the nearest model of transformers");
    }
    if (differences == 0) return {text, &kind};
    if (differences < fewest) fewest = differences, nearest = first;
  }
  internal::fail(Code::kInvalidArgument, nearest);
}

void write_hf(const std::string& folder, const Written& model, DType dtype) {
  const auto [text, kind] = config_json(*model.family, model.config, dtype);
  Tensors tensors;
  std::vector<io::NamedView> views;
  for (const TensorPlan& plan : plan_tensors(*model.family, model.config, kind->model_type, shapes_of(model)))
    views.push_back({plan.name, tensors.values(plan, model.cells[plan.cell].view, dtype)});
  io::Json config = io::parse_json(text, "config.json"), generation{{"_from_model_config", true}};
  for (io::Json* json : {&config, &generation}) {
    if (model.begin_id) (*json)[kTokenIds[0]] = *model.begin_id;
    if (!model.end_ids.empty())
      (*json)[kTokenIds[1]] = model.end_ids.size() == 1 ? io::Json(model.end_ids[0]) : io::Json(model.end_ids);
  }
  io::write_file_atomic(folder + "/config.json", io::write_json(config, 2) + "\n");
  io::write_file_atomic(folder + "/generation_config.json", io::write_json(generation, 2) + "\n");
  io::write_safetensors_folder(folder, "model", views, {{"format", "pt"}}, kMostFile);
}

namespace {

// Metadata of a configuration. Throws for the fields that GGUF does not have.
io::GgufMetadata metadata_of(const Family& family, const Kind& kind, const nn::ConfigMap& config) {
  const std::string arch = kind.gguf, dot = arch + ".";
  io::GgufMetadata m{{"general.architecture", arch}, {"general.alignment", uint32_t{32}}};
  const nn::ConfigMap map = normal(family, config);
  const auto whole = [](int64_t n) { return static_cast<uint32_t>(n); };
  for (const Field& f : kind.fields) {
    const io::Json value = json_value(map.at(f.weft));
    if (f.gguf && value.is_number_integer())
      m.push_back({dot + f.gguf, whole(value.get<int64_t>())});
    else if (f.gguf && value.is_number())
      m.push_back({dot + f.gguf, static_cast<float>(value.get<double>())});
  }
  const auto need = [&](const char* field, const char* value) {
    WEFT_CHECK(!map.contains(field) || map.at(field) == value, "config: field '", field, "' is '", map.at(field),
               "'; need '", value, "': GGUF files of architecture ", arch, " have no other");
  };
  if (arch == "smollm3") need("no_rope_every", "4");
  need("normalize", "true");
  if (kind.rope_theta == 0) return m;
  const uint32_t head_dim = whole(number(map, "head_dim"));
  m.push_back({dot + "attention.value_length", head_dim});
  m.push_back({dot + "rope.dimension_count", head_dim});
  const nn::RotaryOptions r = rotary_of(config);
  m.push_back({dot + "rope.freq_base", static_cast<float>(r.theta)});
  if (r.type == "llama3") {
    WEFT_CHECK(r.low_freq_factor == 1 && r.high_freq_factor == 4,
               "config: fields 'rope_low_freq_factor' and 'rope_high_freq_factor' are ", r.low_freq_factor, " and ",
               r.high_freq_factor, "; need 1 and 4: GGUF files have no other");
  } else if (r.type != "default") {
    m.push_back({dot + "rope.scaling.type", r.type});
    m.push_back({dot + "rope.scaling.factor", static_cast<float>(r.factor)});
    if (r.type == "yarn") {
      WEFT_CHECK(r.attention_factor == 0, "config: field 'rope_attention_factor' is ", r.attention_factor,
                 "; need 0: GGUF files have no other");
      m.push_back({dot + "rope.scaling.original_context_length", whole(r.original_context)});
      m.push_back({dot + "rope.scaling.yarn_beta_fast", static_cast<float>(r.beta_fast)});
      m.push_back({dot + "rope.scaling.yarn_beta_slow", static_cast<float>(r.beta_slow)});
    }
  }
  return m;
}

// The factors by which llama3 divides the frequencies.
std::vector<float> llama3_factors(const nn::RotaryOptions& r, int64_t head_dim) {
  const auto plain = nn::rotary_frequencies(head_dim, {.theta = r.theta, .type = "default"}).radians,
             scaled = nn::rotary_frequencies(head_dim, r).radians;
  std::vector<float> factors;
  for (size_t i = 0; i < plain.size(); ++i) factors.push_back(static_cast<float>(plain[i] / scaled[i]));
  return factors;
}

bool stays_f32(const std::string& name, const Shape& shape) {
  return shape.size() == 1 || name.ends_with("ffn_gate_inp.weight") || name == "position_embd.weight";
}

// A matrix as blocks of Q8_0.
std::span<const std::byte> q8_0(const StridedView& values, const std::string& name, Tensors& tensors) {
  const int64_t count = values.numel();
  const auto* x = static_cast<const float*>(values.data);
  // The scale is a finite f16 up to this value.
  constexpr float kMost = 65504.0f * 127;
  const bool fits = std::all_of(x, x + count, [](float v) { return std::abs(v) <= kMost; });
  WEFT_CHECK(fits, "tensor '", name, "' has a value that is not finite or above ", kMost, "; need f32 or bf16");
  std::byte* blocks = tensors.room(count / 32 * 34);
  io::quantise_q8_0(x, count, blocks);
  return {blocks, static_cast<size_t>(count / 32 * 34)};
}

}  // namespace

void write_gguf(const std::string& path, const Written& model, const std::string& format,
                const io::GgufMetadata& tokenizer, io::Existing existing) {
  const Kind* kind = config_json(*model.family, model.config).second;
  WEFT_CHECK(kind->gguf, "config: model_type ", kind->model_type, " has no GGUF files; need safetensors");
  const Family& rows = gguf_family(*model.family, *kind);
  io::GgufMetadata metadata = metadata_of(*model.family, *kind, model.config);
  metadata.push_back({"general.file_type", format == "f32" ? 0u : format == "bf16" ? 32u : 7u});
  metadata.insert(metadata.end(), tokenizer.begin(), tokenizer.end());
  Tensors tensors;
  std::vector<io::GgufData> data;
  const auto bytes_of = [](const StridedView& v) {
    return std::span(static_cast<const std::byte*>(v.data), static_cast<size_t>(v.nbytes()));
  };
  std::vector<float> factors;
  if (kind->rope_theta > 0 && rotary_of(model.config).type == "llama3") {
    factors = llama3_factors(rotary_of(model.config), number(normal(*model.family, model.config), "head_dim"));
    data.push_back({"rope_freqs.weight", io::kGgufF32, {std::ssize(factors)}, std::as_bytes(std::span(factors))});
  }
  for (const TensorPlan& plan : plan_tensors(rows, model.config, kind->model_type, shapes_of(model))) {
    const StridedView& cell = model.cells[plan.cell].view;
    const bool plain = format == "f32" || stays_f32(plan.name, plan.shape);
    if (plain || (format == "q8_0" && plan.shape[plan.shape.size() - 1] % 32 != 0))
      data.push_back({plan.name, io::kGgufF32, plan.shape, bytes_of(tensors.values(plan, cell, kFloat32))});
    else if (format == "bf16")
      data.push_back({plan.name, io::kGgufBF16, plan.shape, bytes_of(tensors.values(plan, cell, kBFloat16))});
    else
      data.push_back(
          {plan.name, io::kGgufQ8_0, plan.shape, q8_0(tensors.values(plan, cell, kFloat32), plan.name, tensors)});
  }
  io::write_gguf(path, metadata, data, existing);
}

}  // namespace weft::weights
