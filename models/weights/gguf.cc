#include "models/weights/gguf.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>

#include "framework/base/one_line.h"
#include "framework/io/json.h"
#include "models/nn/transformer/rotary.h"
#include "models/weights/json_value.h"

namespace weft::weights {
namespace {

// Keys after "ARCHITECTURE." that may be missing or one of these values.
constexpr Refused kRefused[] = {
    {"expert_gating_func", "1"},  // softmax
    {"expert_shared_count", "0"},          {"expert_weights_scale", "0|1"},
    {"expert_group_count", "0|1"},         {"expert_group_used_count", "0|1"},
    {"rope.scaling.attn_factor", "1"},     {"rope.scaling.yarn_attn_factor", "1"},
    {"rope.scaling.yarn_ext_factor", "1"}, {"rope.scaling.yarn_log_multiplier", "0"},
    {"attention.causal", "true"},          {"tensor_data_layout", "Meta AI original pth"},
};
// Keys that this file reads itself, or that change nothing.
constexpr std::string_view kKnown[] = {"vocab_size",
                                       "attention.value_length",
                                       "attention.key_length",
                                       "rope.dimension_count",
                                       "rope.freq_base",
                                       "rope.scaling.type",
                                       "rope.scaling.factor",
                                       "rope.scale_linear",
                                       "rope.scaling.finetuned",
                                       "rope.scaling.original_context_length",
                                       "rope.scaling.yarn_beta_fast",
                                       "rope.scaling.yarn_beta_slow",
                                       "attention.sliding_window",
                                       "expert_count",
                                       "expert_weights_norm",
                                       "expert_feed_forward_length",
                                       "feed_forward_length"};
// Parts of the names of keys that change results.
constexpr std::string_view kChanging[] = {"rope.", "scale", "softcap", "sliding", "expert", "clamp", "norm", "bias"};

// The metadata of one architecture as the fields of config.json.
class Translator {
 public:
  explicit Translator(const io::GgufFile& file) : file_(file), path_(file.path()) {
    const auto arch = file.text("general.architecture");
    WEFT_CHECK(arch, path_, ": no key 'general.architecture'; need a model of ", architectures());
    arch_ = *arch;
    const bool experts = integer("expert_count").value_or(0) > 0;
    for (const Family* f : families())
      for (const Kind& k : f->kinds)
        if (!kind_ && k.gguf && arch_ == k.gguf && has_experts(k) == experts) family_ = f, kind_ = &k;
    WEFT_CHECK(kind_, path_, ": 'general.architecture' is '", one_line(arch_, 40), "'", experts ? " with experts" : "",
               "; need one of ", architectures());
  }

  HfConfig config(int64_t context) {
    json_["model_type"] = kind_->model_type;
    for (const Field& f : kind_->fields) field(f);
    const io::GgufTensor* tokens = file_.find("token_embd.weight");
    WEFT_CHECK_AS(kNotFound, tokens && tokens->shape.size() == 2, path_,
                  ": no matrix 'token_embd.weight'; need the weights of a model");
    json_["vocab_size"] = tokens->shape[0];
    json_["tie_word_embeddings"] = !file_.find("output.weight");
    json_["attention_bias"] = has_bias();
    if (std::string_view(kind_->model_type) == "qwen3_moe")
      json_["norm_topk_prob"] = file_.boolean(key("expert_weights_norm")).value_or(true);
    head_dim_ = number_or("attention.key_length", number_or("embedding_length", 0) /
                                                      std::max<int64_t>(1, number_or("attention.head_count", 1)));
    if (kind_->rope_theta > 0) {
      json_["head_dim"] = head_dim_;
      for (const char* other : {"attention.value_length", "rope.dimension_count"})
        WEFT_CHECK(number_or(other, head_dim_) == head_dim_, path_, ": '", key(other), "' is ", number_or(other, 0),
                   "; need ", head_dim_, ", the size of a head");
      const int64_t window = number_or("attention.sliding_window", 0);
      json_["sliding_window"] = window > 0 ? io::Json(window) : io::Json();
      json_["rope_parameters"] = rotary();
    }
    HfConfig c;
    try {
      c = read_config(io::write_json(json_), path_, For::kWeights, context);
    } catch (const Error& e) {
      throw Error(e.code(), with_keys(e.what()));
    }
    for (auto& [weft, name] : c.names)
      if (const auto it = keys_.find(name); it != keys_.end()) name = it->second;
    c.family = &gguf_family(*family_, *kind_);
    c.not_known = unknown_keys();
    return c;
  }

 private:
  static std::string architectures() {
    std::string all;
    for (const Family* f : families())
      for (const Kind& k : f->kinds)
        if (const std::string name = k.gguf ? k.gguf : "";
            !name.empty() && (", " + all).find(", " + name + ",") == all.npos)
          all += str_cat(name, ", ");
    return all.substr(0, all.size() - 2);
  }
  static bool has_experts(const Kind& k) {
    return std::any_of(k.fields.begin(), k.fields.end(),
                       [](const Field& f) { return f.weft == std::string("experts"); });
  }
  std::string key(std::string_view suffix) const { return str_cat(arch_, ".", suffix); }
  std::optional<int64_t> integer(std::string_view suffix) const { return file_.integer(key(suffix)); }
  int64_t number_or(std::string_view suffix, int64_t otherwise) const { return integer(suffix).value_or(otherwise); }
  bool has_bias() const { return file_.find("blk.0.attn_q.bias") || file_.find("blk.0.attn_output.bias"); }

  void field(const Field& f) {
    if (!f.gguf) return;
    const std::string hf = f.names().front();
    keys_[hf] = key(f.gguf);
    known_.push_back(f.gguf);
    const std::optional<std::string> value = file_.shown(key(f.gguf));
    WEFT_CHECK(value || f.otherwise || hf == "vocab_size", path_, ": no key '", key(f.gguf),
               "'; need it for architecture ", arch_);
    if (value) json_[hf] = json_value(*value);
  }

  io::Json rotary() const {
    const auto shown = [&](std::string_view suffix) -> io::Json {
      const auto value = file_.shown(key(suffix));
      return value ? json_value(*value) : io::Json();
    };
    io::Json rope{{"rope_theta", shown("rope.freq_base")}};
    if (rope["rope_theta"].is_null()) rope["rope_theta"] = 10000;
    std::string type(file_.text(key("rope.scaling.type")).value_or("none"));
    if (file_.contains(key("rope.scale_linear"))) {
      type = "linear";
      rope["factor"] = shown("rope.scale_linear");
    }
    rope["rope_type"] = type == "none" ? "default" : type;
    if (type != "none") {
      if (!rope.contains("factor")) rope["factor"] = shown("rope.scaling.factor");
      if (file_.contains(key("rope.scaling.original_context_length")))
        rope["original_max_position_embeddings"] = shown("rope.scaling.original_context_length");
    }
    if (type == "yarn")
      for (const char* beta : {"beta_fast", "beta_slow"})
        if (file_.contains(key(str_cat("rope.scaling.yarn_", beta))))
          rope[beta] = shown(str_cat("rope.scaling.yarn_", beta));
    if (const io::GgufTensor* t = rope_factors()) {
      const std::string what = str_cat(path_, ": tensor '", t->name, "'");
      WEFT_CHECK(type == "none" && t->format->dequantise && t->shape == (Shape{head_dim_ / 2}), what, " is ",
                 t->format->name, t->shape, " beside rope.scaling.type ", one_line(type, 40), "; need [", head_dim_ / 2,
                 "] factors without another scaling");
      std::vector<float> factors(static_cast<size_t>(head_dim_ / 2));
      std::vector<std::byte> blocks(static_cast<size_t>(t->end - t->begin));
      file_.read(*t, 0, blocks);
      io::dequantise(*t->format, blocks.data(), 0, head_dim_ / 2, factors.data());
      if (std::all_of(factors.begin(), factors.end(), [](float f) { return f == 1; })) return rope;
      WEFT_CHECK(rope["rope_theta"].is_number() && rope["rope_theta"] > 0, path_, ": '", key("rope.freq_base"),
                 "' is not a number above 0; need one");
      const auto [factor, original] = llama3_of(factors, rope["rope_theta"].get<double>(), what);
      rope["rope_type"] = "llama3";
      rope["factor"] = factor;
      rope["low_freq_factor"] = 1;
      rope["high_freq_factor"] = 4;
      rope["original_max_position_embeddings"] = original;
    }
    return rope;
  }

  // Factors of the frequencies, which all layers share.
  const io::GgufTensor* rope_factors() const {
    const io::GgufTensor* t = file_.find("rope_freqs.weight");
    return t ? t : file_.find("blk.0.rope_freqs.weight");
  }

  // An error with the file's keys instead of the names of config.json.
  std::string with_keys(std::string text) const {
    for (const auto& [hf, gguf] : keys_)
      if (const size_t at = text.find(str_cat("field '", hf, "'")); at != text.npos)
        return text.replace(at, hf.size() + 8, str_cat("'", gguf, "'"));
    return text;
  }

  std::vector<std::string> unknown_keys() const {
    std::vector<std::string> unknown;
    for (const std::string_view name : file_.keys()) {
      if (!name.starts_with(arch_ + ".")) continue;
      const std::string_view suffix = name.substr(arch_.size() + 1);
      const auto refused =
          std::find_if(std::begin(kRefused), std::end(kRefused), [&](const Refused& r) { return suffix == r.hf; });
      if (refused != std::end(kRefused)) {
        refused->check(*file_.shown(name), str_cat(path_, ": '", name, "'"));
        continue;
      }
      if (std::find(known_.begin(), known_.end(), suffix) != known_.end() ||
          std::find(std::begin(kKnown), std::end(kKnown), suffix) != std::end(kKnown))
        continue;
      for (const std::string_view part : kChanging)
        WEFT_CHECK(suffix.find(part) == suffix.npos, path_, ": '", one_line(name, 60),
                   "' would change results; need a model without it");
      unknown.push_back(one_line(name, 60));
    }
    return unknown;
  }

  const io::GgufFile& file_;
  const std::string& path_;
  std::string arch_;
  const Family* family_ = nullptr;
  const Kind* kind_ = nullptr;
  int64_t head_dim_ = 0;
  io::Json json_ = io::Json::object();
  std::map<std::string, std::string> keys_;  // the key of each field of config.json
  std::vector<std::string_view> known_;
};

class Gguf final : public WeightSource {
 public:
  explicit Gguf(const io::GgufFile& file) : file_(file) {
    for (const io::GgufTensor& t : file_.tensors())
      WEFT_CHECK_AS(kUnimplemented, t.format->dequantise, path(), ": tensor '", one_line(t.name, 80), "' has format ",
                    t.format->name, "; need F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K or Q6_K");
  }
  const std::string& path() const override { return file_.path(); }
  std::vector<std::string> names() const override {
    std::vector<std::string> names;
    for (const io::GgufTensor& t : file_.tensors()) names.push_back(t.name);
    return names;
  }
  std::optional<WeightInfo> find(std::string_view name) const override {
    const io::GgufTensor* t = file_.find(name);
    if (!t) return {};
    return WeightInfo{dtype_of(*t), t->shape};
  }
  const void* in_place(std::string_view name) const override {
    const io::GgufTensor& t = at(name);
    return is_plain(t) ? file_.bytes(t).data() : nullptr;  // the format aligns the data
  }
  const void* read(std::string_view name, int64_t begin, int64_t end, std::vector<std::byte>& room) const override {
    const io::GgufTensor& t = at(name);
    const io::GgufFormat& f = *t.format;
    const int64_t first = begin / f.block, last = (end + f.block - 1) / f.block;
    const auto bytes = static_cast<size_t>((last - first) * f.block_bytes);
    if (is_plain(t)) {
      room.resize(bytes);
      file_.read(t, first * f.block_bytes, room);
      return room.data();
    }
    const auto blocks = std::make_unique_for_overwrite<std::byte[]>(bytes);
    file_.read(t, first * f.block_bytes, {blocks.get(), bytes});
    room.resize(static_cast<size_t>(end - begin) * sizeof(float));
    io::dequantise(f, blocks.get(), begin - first * f.block, end - first * f.block,
                   reinterpret_cast<float*>(room.data()));
    return room.data();
  }
  void release(std::string_view name) const override { file_.release(at(name)); }

 private:
  // Whether the elements are stored as numbers and not in blocks.
  static bool is_plain(const io::GgufTensor& t) { return t.format->block == 1; }
  static DType dtype_of(const io::GgufTensor& t) {
    return t.format->number == io::kGgufF16 ? kFloat16 : t.format->number == io::kGgufBF16 ? kBFloat16 : kFloat32;
  }
  const io::GgufTensor& at(std::string_view name) const {
    const io::GgufTensor* t = file_.find(name);
    WEFT_CHECK_AS(kNotFound, t, path(), ": no tensor '", name, "' among its ", file_.tensors().size());
    return *t;
  }
  const io::GgufFile file_;
};

}  // namespace

HfConfig read_gguf_config(const io::GgufFile& file, int64_t context) { return Translator(file).config(context); }

std::unique_ptr<WeightSource> gguf_source(const io::GgufFile& file) { return std::make_unique<Gguf>(file); }

std::pair<double, int64_t> llama3_of(const std::vector<float>& factors, double theta, const std::string& what) {
  // All models of this type have the factors 1 and 4 of low and high frequencies. A frequency between them gives the
  // original context: 1 / f = (1 - s) / factor + s with s = (original · radians / 2π - 1) / 3.
  constexpr double kLow = 1, kHigh = 4;
  const int64_t head_dim = 2 * std::ssize(factors);
  const double factor = *std::max_element(factors.begin(), factors.end());
  const std::vector<double> plain = nn::rotary_frequencies(head_dim, {.theta = theta, .type = "default"}).radians;
  double original = 0;
  for (size_t i = 0; i < factors.size(); ++i) {
    const double f = factors[i];
    if (f <= 1 || f >= factor) continue;
    const double s = (1 / f - 1 / factor) / (1 - 1 / factor);
    original = std::round((s * (kHigh - kLow) + kLow) * 2 * M_PI / plain[i]);
    break;
  }
  const bool possible = std::isfinite(factor) && factor > 1 && original >= 1 && original <= 1e9;
  // The file's factors are f32 of f32 frequencies: a few units of 2^-24, of a quotient of theta's power.
  constexpr double kRounding = 1e-5;
  bool equal = possible;
  if (possible) {
    const std::vector<double> scaled =
        nn::rotary_frequencies(head_dim, {.theta = theta,
                                          .factor = factor,
                                          .low_freq_factor = kLow,
                                          .high_freq_factor = kHigh,
                                          .original_context = static_cast<int64_t>(original),
                                          .type = "llama3"})
            .radians;
    for (size_t i = 0; i < factors.size(); ++i)
      equal = equal && std::abs(plain[i] / scaled[i] - factors[i]) <= kRounding * factors[i];
  }
  WEFT_CHECK(equal, what, " has factors that no llama3 scaling with low_freq_factor 1 and high_freq_factor 4 gives");
  return {factor, static_cast<int64_t>(original)};
}

Layout gguf_layout(Layout layout, bool permuted) {
  switch (layout) {
    case Layout::kTransposed:
      return Layout::kSame;
    case Layout::kQkvTransposed:
      return Layout::kQkv;
    case Layout::kQ:
      return permuted ? Layout::kQPermuted : layout;
    case Layout::kK:
      return permuted ? Layout::kKPermuted : layout;
    case Layout::kExpertsGate:
    case Layout::kExpertsUp:
      return Layout::kExperts;
    default:
      return layout;
  }
}

const Family& gguf_family(const Family& family, const Kind& kind) {
  static std::mutex mutex;
  static auto* made = new std::map<const Kind*, Family>;
  const std::lock_guard lock(mutex);
  const auto [it, added] = made->try_emplace(&kind);
  if (!added) return it->second;
  Family& f = it->second;
  f.program = family.program;
  f.prefix = "";
  f.settings = "its metadata";
  f.ignored = {"rope_freqs.weight", "blk.{}.rope_freqs.weight"};
  for (const Row& row : family.rows)
    if (row.gguf) f.rows.push_back({row.weft, row.gguf, gguf_layout(row.layout, kind.gguf_permuted)});
  return f;
}

}  // namespace weft::weights
