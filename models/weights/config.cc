#include "models/weights/config.h"

#include <algorithm>
#include <cmath>

#include "framework/base/one_line.h"
#include "framework/io/json.h"
#include "models/nn/transformer/rotary.h"
#include "models/weights/json_value.h"

namespace weft::weights {

struct ConfigFile::Values {
  io::Json json;
};

ConfigFile::ConfigFile(std::string_view text, std::string what)
    : what_(std::move(what)), values_(new Values{io::parse_json(text, what_)}) {
  WEFT_CHECK(values_->json.is_object(), what_, ": is not an object; need the fields of a model");
}
ConfigFile::ConfigFile(std::unique_ptr<Values> values, std::string what)
    : what_(std::move(what)), values_(std::move(values)) {}
ConfigFile::~ConfigFile() = default;
ConfigFile::ConfigFile(ConfigFile&&) noexcept = default;

std::vector<std::string> ConfigFile::names() const {
  std::vector<std::string> names;
  for (const auto& [name, value] : values_->json.items()) names.push_back(name);
  return names;
}

bool ConfigFile::contains(std::string_view name) const { return values_->json.contains(name); }

bool ConfigFile::has(std::string_view name) const {
  const auto it = values_->json.find(name);
  return it != values_->json.end() && !it->is_null();
}

std::optional<std::string> ConfigFile::text(std::string_view name) const {
  if (!has(name)) return {};
  const io::Json& v = values_->json[std::string(name)];
  if (v.is_string()) return v.get<std::string>();
  if (v.is_number_float()) return io::text_of(v.get<double>());
  return io::write_json(v);
}

std::optional<int64_t> ConfigFile::integer(std::string_view name) const {
  if (!has(name)) return {};
  return io::json_get<int64_t>(values_->json, name, what_);
}

std::optional<double> ConfigFile::number(std::string_view name) const {
  if (!has(name)) return {};
  return io::json_get<double>(values_->json, name, what_);
}

template <class T, class Is>
static std::vector<T> list(const io::Json& json, std::string_view name, const std::string& what, Is is,
                           const char* need) {
  std::vector<T> list;
  const auto it = json.find(name);
  if (it == json.end() || it->is_null()) return list;
  const bool fits = it->is_array() && std::all_of(it->begin(), it->end(), is);
  WEFT_CHECK(fits, what, ": field '", name, "' is not a list of ", need, "; need one");
  for (const io::Json& v : *it) list.push_back(v.get<T>());
  return list;
}

std::vector<int64_t> ConfigFile::integers(std::string_view name) const {
  return list<int64_t>(
      values_->json, name, what_, [](const io::Json& v) { return v.is_number_integer(); }, "whole numbers");
}

std::vector<std::string> ConfigFile::texts(std::string_view name) const {
  return list<std::string>(
      values_->json, name, what_, [](const io::Json& v) { return v.is_string(); }, "texts");
}

std::optional<ConfigFile> ConfigFile::object(std::string_view name) const {
  if (!has(name)) return {};
  const io::Json& v = values_->json[std::string(name)];
  WEFT_CHECK(v.is_object(), what_, ": field '", name, "' is not an object; need one");
  return ConfigFile(std::unique_ptr<Values>(new Values{v}), str_cat(what_, ": ", name));
}

int64_t number(const nn::ConfigMap& config, const std::string& field, const nn::Allowed& allowed) {
  int64_t n = 0;
  const auto it = config.find(field);
  const std::string text = it == config.end() ? "" : it->second;
  nn::check_field(field, text, io::set_text(text, n));
  nn::check_field(field, text, io::unfit(n, allowed));
  return n;
}

io::Json json_value(const std::string& text) {
  double d = 0;
  int64_t n = 0;
  bool b = false;
  if (io::set_text(text, n).empty()) return n;
  if (io::set_text(text, d).empty() && std::isfinite(d)) return d;
  if (io::set_text(text, b).empty()) return b;
  return text;
}

namespace {

/// The words of a list with separators.
std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> words;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(separator, at), text.size());
    words.emplace_back(text.substr(at, end - at));
    at = end + 1;
  }
  return words;
}

std::string joined(const std::vector<std::string>& words, const char* between) {
  std::string all;
  for (const std::string& w : words) all += str_cat(all.empty() ? "" : between, w);
  return all;
}

// Fields of a file that change nothing here: of training, generation, saving, tokenizers and the library.
constexpr std::string_view kInert =
    "_attn_implementation _attn_implementation_autoset _commit_hash _from_model_config _name_or_path "
    "architectures attention_dropout attn_pdrop auto_map bos_token bos_token_id chunk_size_feed_forward "
    "decoder_start_token_id do_sample dtype embd_pdrop eos_token eos_token_id id2label initializer_range "
    "intermediate_size is_decoder is_encoder_decoder is_llama_config label2id layer_types max_length "
    "max_window_layers model_type n_ctx no_rope_layer_interval no_rope_layers original_max_position_embeddings "
    "output_attentions output_hidden_states output_router_logits pad_token pad_token_id problem_type resid_pdrop "
    "return_dict rope_interleaved rope_parameters rope_scaling rope_theta router_aux_loss_coef "
    "router_jitter_noise sliding_window summary_activation summary_first_dropout summary_proj_to_labels "
    "summary_type summary_use_proj task_specific_params tokenizer_class torch_dtype transformers.js_config "
    "transformers_version unk_token_id use_cache use_sliding_window";

bool changes_results(std::string_view name) {
  return name.ends_with("_scaling") || name.ends_with("_multiplier") || name.starts_with("logit") ||
         name == "quantization_config" || name.starts_with("sliding") || name.starts_with("rope");
}

struct RotaryNumber {
  std::string_view name;
  double nn::RotaryOptions::*to;
};
constexpr RotaryNumber kRotaryNumbers[] = {
    {"rope_theta", &nn::RotaryOptions::theta},
    {"factor", &nn::RotaryOptions::factor},
    {"low_freq_factor", &nn::RotaryOptions::low_freq_factor},
    {"high_freq_factor", &nn::RotaryOptions::high_freq_factor},
    {"attention_factor", &nn::RotaryOptions::attention_factor},
    {"beta_fast", &nn::RotaryOptions::beta_fast},
    {"beta_slow", &nn::RotaryOptions::beta_slow},
};

// One of the two forms of rotary settings. `theta` and `original`: values for a form that has none.
nn::RotaryOptions rotary_of(const ConfigFile& file, double theta, int64_t original) {
  nn::RotaryOptions r{.theta = theta, .original_context = original, .type = "default"};
  double mscale = 0, mscale_all = 0;
  for (const std::string& name : file.names()) {
    if (name == "rope_type" || name == "type") {
      const std::string type = file.text(name).value_or("default");
      WEFT_CHECK(!file.has("rope_type") || file.text("rope_type") == type, file.what(), ": field 'type' is '",
                 one_line(type, 40), "' and 'rope_type' is another; need one");
      WEFT_CHECK(io::unfit(type, {.words = "default,linear,llama3,yarn"}).empty(), file.what(), ": field '", name,
                 "' is '", one_line(type, 40), "'; need default, linear, llama3 or yarn");
      r.type = type;
    } else if (name == "original_max_position_embeddings") {
      r.original_context = file.integer(name).value_or(original);
    } else if (name == "mscale" || name == "mscale_all_dim") {
      (name == "mscale" ? mscale : mscale_all) = file.number(name).value_or(0);
    } else if (const auto number = std::ranges::find(kRotaryNumbers, name, &RotaryNumber::name);
               number != std::end(kRotaryNumbers)) {
      r.*number->to = file.number(name).value_or(r.*number->to);
    } else {
      const bool inert = !file.has(name) || (name == "truncate" && file.text(name) == "true") ||
                         (name == "partial_rotary_factor" && file.number(name) == 1) || name == "finetuned";
      WEFT_CHECK(inert, file.what(), ": field '", one_line(name, 40), "' is ", one_line(*file.text(name), 40),
                 "; need a file without it: Weft's rotary positions do not have it");
    }
  }
  WEFT_CHECK(r.type == "default" || file.has("factor"), file.what(),
             ": field 'factor' is missing; need it for rope_type ", r.type);
  if (r.type == "yarn" && r.attention_factor == 0 && mscale != 0 && mscale_all != 0 && r.factor > 1) {
    const double l = 0.1 * std::log(r.factor);
    r.attention_factor = (l * mscale + 1) / (l * mscale_all + 1);
  }
  if (r.type == "default") r.factor = 1;
  if (r.factor == 1 && r.attention_factor == 0) r = {.theta = r.theta, .type = "default"};
  return r;
}

// Both forms of rotary settings: rope_parameters (transformers 5), and rope_theta with rope_scaling (4).
nn::ConfigMap read_rotary(const ConfigFile& file, const Kind& kind, int64_t context) {
  const int64_t original = file.integer("original_max_position_embeddings").value_or(context);
  const double theta = file.number("rope_theta").value_or(kind.rope_theta);
  const std::optional<ConfigFile> now = file.object("rope_parameters"), before = file.object("rope_scaling");
  const ConfigFile none("{}", file.what());
  const nn::ConfigMap old = nn::to_map(rotary_of(before ? *before : none, theta, original));
  if (!now) return old;
  const nn::ConfigMap map = nn::to_map(rotary_of(*now, theta, original));
  if (!before && !file.has("rope_theta")) return map;
  for (const auto& [name, value] : map)
    WEFT_CHECK((!before && name != "rope_theta") || old.at(name) == value, file.what(),
               ": field 'rope_parameters' has ", name, " ", value, ", but rope_theta and rope_scaling have ",
               old.at(name), "; need equal values");
  return map;
}

// A window that is shorter than the context hides tokens, which Weft's models do not.
void check_window(const ConfigFile& file, const Kind& kind, int64_t context) {
  const std::string use = file.text("use_sliding_window")
                              .value_or(std::string_view(kind.model_type).starts_with("qwen") ? "false" : "true");
  const std::optional<int64_t> window =
      file.contains("sliding_window") ? file.integer("sliding_window") : kind.sliding_window;
  bool windowed = use != "false" && window;
  if (const auto types = file.texts("layer_types"); !types.empty())
    windowed = std::count(types.begin(), types.end(), "full_attention") != std::ssize(types);
  WEFT_CHECK(!windowed || window.value_or(0) >= context, file.what(), ": field 'sliding_window' is ",
             window.value_or(0), "; need attention to all tokens: at least the context, ", context, ", or null");
}

const Kind& kind_of(const ConfigFile& file, For use, const Family** family) {
  const std::string type = file.text("model_type").value_or("");
  WEFT_CHECK(!type.empty(), file.what(), ": field \"model_type\" is missing; need one of ", model_types(use));
  for (const Family* f : families())
    for (const Kind& k : f->kinds)
      if (type == k.model_type && (use == For::kPlan || !k.plan_only)) return *family = f, k;
  internal::fail(Code::kInvalidArgument, str_cat(file.what(), ": field 'model_type' is '", one_line(type, 40),
                                                 "'; need one of ", model_types(use)));
}

// The name that the file has, or the first.
std::string name_in(const ConfigFile& file, const std::vector<std::string>& names) {
  for (const std::string& name : names)
    if (file.has(name)) return name;
  return names[0];
}

void check_refused(const ConfigFile& file, const Kind& kind, For use) {
  for (const Refused& r : kind.refused) {
    const std::optional<std::string> value = file.text(r.hf);
    if (!value || (use == For::kPlan && !r.cost)) continue;
    r.check(*value, str_cat(file.what(), ": field '", r.hf, "'"));
  }
}

std::vector<std::string> unknown_fields(const ConfigFile& file, const Kind& kind) {
  std::vector<std::string> known = split(kInert, ' '), unknown;
  for (const Field& f : kind.fields)
    for (std::string& name : f.names()) known.push_back(std::move(name));
  for (const Refused& r : kind.refused) known.emplace_back(r.hf);
  for (const std::string& name : file.names()) {
    if (!file.has(name) || std::find(known.begin(), known.end(), name) != known.end()) continue;
    WEFT_CHECK(!changes_results(name), file.what(), ": field '", one_line(name, 60),
               "' would change results; need a model without it");
    unknown.push_back(one_line(name, 60));
  }
  return unknown;
}

}  // namespace

std::vector<std::string> Field::names() const { return *hf ? split(hf, '|') : std::vector<std::string>(); }

void Refused::check(const std::string& value, const std::string& place) const {
  const std::vector<std::string> values = split(allowed, '|');
  WEFT_CHECK(std::find(values.begin(), values.end(), value) != values.end(), place, " is ", one_line(value, 40),
             "; need ", *allowed ? joined(values, " or ") : std::string("a file without it"));
}

std::string model_types(For use) {
  std::string names;
  for (const Family* f : families())
    for (const Kind& k : f->kinds)
      if (use == For::kPlan || !k.plan_only) names += str_cat(names.empty() ? "" : ", ", k.model_type);
  return names;
}

std::vector<std::string> HfConfig::notes(const std::string& file) const {
  if (not_known.empty()) return {};
  constexpr size_t kMost = 10;
  const std::vector<std::string> first(not_known.begin(), not_known.begin() + std::min(kMost, not_known.size()));
  return {str_cat(file, ": ", not_known.size(), " unknown fields, which are ignored: ", joined(first, ", "),
                  not_known.size() > kMost ? ", ..." : "")};
}

HfConfig read_config(std::string_view text, const std::string& what, For use, int64_t context) {
  const ConfigFile file(text, what);
  HfConfig c;
  c.kind = &kind_of(file, use, &c.family);
  check_refused(file, *c.kind, use);
  for (const Field& f : c.kind->fields) {
    const std::string name = name_in(file, f.names());
    std::optional<std::string> value = file.text(name);
    if (!value && f.otherwise) value = *f.otherwise == '=' ? c.config[f.otherwise + 1] : std::string(f.otherwise);
    WEFT_CHECK(value, what, ": field '", name, "' is missing; need it for model_type ", c.kind->model_type);
    c.config[f.weft] = *value;
    c.names[f.weft] = name;
  }
  for (const auto& [name, value] : c.kind->fixed) c.config[name] = value;
  with_names(c, what, [&] {
    if (c.kind->finish) c.kind->finish(file, c.config);
    const int64_t longest = number(c.config, "context", nn::kContext);
    WEFT_CHECK(context >= 0 && context <= longest, what, ": context: got ", context, "; need a number from 0 to ",
               longest, ", the context of the file");
    if (context > 0) c.config["context"] = io::text_of(context);
    check_window(file, *c.kind, context > 0 ? context : longest);
    if (c.kind->rope_theta > 0) {
      const nn::ConfigMap rotary =
          use == For::kPlan ? nn::to_map(nn::RotaryOptions{.type = "default"}) : read_rotary(file, *c.kind, longest);
      c.config.insert(rotary.begin(), rotary.end());
    }
  });
  if (use == For::kWeights) c.not_known = unknown_fields(file, *c.kind);
  return c;
}

void fail_with_names(const HfConfig& c, const std::string& what, const Error& e) {
  std::string text = e.what();
  for (const auto& [field, name] : c.names)
    if (const std::string start = str_cat("config: field '", field, "'"); text.starts_with(start)) {
      text = str_cat(what, ": field '", name, "'", text.substr(start.size()));
      break;
    }
  if (!text.starts_with(what)) text = str_cat(what, ": ", text);
  throw Error(e.code(), text);
}

std::span<const Family* const> families() {
  static const Family* const all[] = {&gpt2_family(), &llama_family(), &moe_family()};
  return all;
}

}  // namespace weft::weights
