#include "tools/plan/model/hf_config.h"

#include <algorithm>

#include "framework/base/error.h"
#include "framework/base/one_line.h"
#include "framework/io/json.h"
#include "tools/plan/model/hf_model.h"

namespace weft::planner {
namespace {

class Fields {
 public:
  Fields(const io::Json& json, std::string_view what) : json_(json), what_(what) {}

  int64_t number(const char* name) const { return io::json_get<int64_t>(json_, name, what_); }
  int64_t number(const char* name, int64_t otherwise) const { return has(name) ? number(name) : otherwise; }
  bool flag(const char* name, bool otherwise) const {
    return has(name) ? io::json_get<bool>(json_, name, what_) : otherwise;
  }
  bool has(const char* name) const { return json_.contains(name) && !json_[name].is_null(); }

 private:
  const io::Json& json_;
  std::string_view what_;
};

// A model_type with llama's layers except for these fields; transformers' configuration classes contain the defaults.
struct Kind {
  const char* type;
  bool tied = false;      // if tie_word_embeddings is missing
  bool qkv_bias = false;  // always
  bool qk_norm = false;
  const char* experts = nullptr;      // the field that counts them
  const char* expert_ffn = nullptr;   // the field of their width
  const char* shared_ffn = nullptr;   // the field of the width of all shared experts together
  const char* shared = nullptr;       // the field of the number of shared experts, each as wide as another expert
  const char* dense_first = nullptr;  // the field of the number of first layers without experts
};
constexpr Kind kKinds[] = {
    {.type = "llama"},
    {.type = "mistral"},
    {.type = "gemma", .tied = true},
    {.type = "qwen2", .qkv_bias = true},
    {.type = "qwen3", .qk_norm = true},
    {.type = "mixtral", .experts = "num_local_experts", .expert_ffn = "intermediate_size"},
    {.type = "qwen2_moe",
     .qkv_bias = true,
     .experts = "num_experts",
     .expert_ffn = "moe_intermediate_size",
     .shared_ffn = "shared_expert_intermediate_size"},
    {.type = "qwen3_moe", .qk_norm = true, .experts = "num_experts", .expert_ffn = "moe_intermediate_size"},
    {.type = "deepseek",
     .experts = "n_routed_experts",
     .expert_ffn = "moe_intermediate_size",
     .shared = "n_shared_experts",
     .dense_first = "first_k_dense_replace"},
};

const Kind& kind_of(const std::string& type, std::string_view what) {
  for (const Kind& k : kKinds)
    if (type == k.type) return k;
  internal::fail(Code::kInvalidArgument,
                 str_cat(what, ": model_type is '", one_line(type, 40), "'; need one of ", hf_model_types()));
}

// The file's names of the sizes of a shape.
struct Names {
  const char *vocab = "vocab_size", *context = "max_position_embeddings", *layers = "num_hidden_layers",
             *dim = "hidden_size", *heads = "num_attention_heads", *kv_heads = "num_key_value_heads",
             *head_dim = "head_dim", *ffn = "intermediate_size";
  const char *experts = "", *top_k = "num_experts_per_tok", *expert_ffn = "", *shared_ffn = "", *dense_layers = "";
};

void check_sizes(const HfSizes& s, const Names& of) {
  const auto in_range = [&](const char* name, int64_t n, int64_t least, int64_t most) {
    WEFT_CHECK(n >= least && n <= most, s.name, ": ", name, " is ", n, "; need a number from ", least, " to ", most);
  };
  constexpr int64_t kWidth = 1 << 22;
  in_range(of.vocab, s.vocab, 1, 1 << 26);
  in_range(of.context, s.context, 1, 1 << 30);
  in_range(of.layers, s.layers, 1, 100000);
  in_range(of.dim, s.dim, 1, kWidth);
  in_range(of.heads, s.heads, 1, 100000);
  in_range(of.kv_heads, s.kv_heads, 1, 100000);
  in_range(of.head_dim, s.head_dim, 1, 1 << 16);
  in_range(of.ffn, s.ffn, 1, kWidth);
  if (s.moe) {
    in_range(of.experts, s.experts, 1, kWidth);
    in_range(of.top_k, s.top_k, 1, s.experts);
    in_range(of.expert_ffn, s.expert_ffn, 1, kWidth);
    in_range(of.shared_ffn, s.shared_ffn, 0, kWidth);
    in_range(of.dense_layers, s.dense_layers, 0, s.layers);
  }
  // Counts are products of sizes in 64 bits.
  const double dim = static_cast<double>(s.dim),
               layer = dim * static_cast<double>(s.head_dim) * static_cast<double>(2 * s.heads + 2 * s.kv_heads) +
                       3 * dim * static_cast<double>(s.ffn + s.shared_ffn + s.experts) +
                       3 * dim * static_cast<double>(s.experts) * static_cast<double>(s.expert_ffn),
               all = dim * static_cast<double>(2 * s.vocab + (s.gpt2 ? s.context : 0)) +
                     static_cast<double>(s.layers) * layer;
  constexpr double kMost = 1e15;
  WEFT_CHECK(all <= kMost, s.name, ": the sizes give about ", all, " parameters; need at most ", kMost);
  WEFT_CHECK(s.heads % s.kv_heads == 0, s.name, ": ", of.kv_heads, " is ", s.kv_heads, "; need a divisor of ", of.heads,
             ", ", s.heads);
}

// The heads share dim evenly, as in transformers.
int64_t width_of_head(const HfSizes& s, const Names& of, const char* other) {
  WEFT_CHECK(s.heads > 0, s.name, ": ", of.heads, " is ", s.heads, "; need 1 or more");
  WEFT_CHECK(s.dim % s.heads == 0, s.name, ": ", of.dim, " is ", s.dim, "; need a multiple of ", of.heads, ", ",
             s.heads, other);
  return s.dim / s.heads;
}

}  // namespace

std::string hf_model_types() {
  std::string names = "gpt2";
  for (const Kind& k : kKinds) names += str_cat(", ", k.type);
  return names;
}

ModelShape hf_shape(std::string_view text, std::string_view what) {
  const io::Json json = io::parse_json(text, what);
  const std::string type = io::json_get<std::string>(json, "model_type", what);
  const Fields f(json, what);
  HfSizes s{.name = std::string(what)};
  if (type == "gpt2") {
    s.gpt2 = true;
    s.vocab = f.number("vocab_size");
    s.context = f.number("n_positions");
    s.layers = f.number("n_layer");
    s.dim = f.number("n_embd");
    s.heads = s.kv_heads = f.number("n_head");
    s.ffn = f.number("n_inner", 4 * s.dim);
    s.tied = f.flag("tie_word_embeddings", true);
    const Names names{.vocab = "vocab_size",
                      .context = "n_positions",
                      .layers = "n_layer",
                      .dim = "n_embd",
                      .heads = "n_head",
                      .kv_heads = "n_head",
                      .ffn = "n_inner"};
    s.head_dim = width_of_head(s, names, "");
    check_sizes(s, names);
    return hf_model_shape(s);
  }
  const Kind& kind = kind_of(type, what);
  s.vocab = f.number("vocab_size");
  s.context = f.number("max_position_embeddings");
  s.layers = f.number("num_hidden_layers");
  s.dim = f.number("hidden_size");
  s.heads = f.number("num_attention_heads");
  s.kv_heads = f.number("num_key_value_heads", s.heads);
  s.ffn = f.number("intermediate_size");
  s.tied = f.flag("tie_word_embeddings", kind.tied);
  Names names;
  s.head_dim = f.has("head_dim") ? f.number("head_dim") : width_of_head(s, names, ", or head_dim");
  s.qkv_bias = kind.qkv_bias || f.flag("attention_bias", false);
  s.qk_norm = kind.qk_norm;
  // Fields that change a cost and have no place in a shape.
  WEFT_CHECK(!f.has("kv_lora_rank"), what, ": has kv_lora_rank; need keys and values of whole heads");
  WEFT_CHECK(!f.flag("mlp_bias", false), what, ": mlp_bias is true; need layers without it");
  if (f.flag("use_sliding_window", !type.starts_with("qwen")) && f.has("sliding_window"))
    WEFT_CHECK(f.number("sliding_window") >= s.context, what, ": sliding_window is ", f.number("sliding_window"),
               "; need attention to all tokens: at least max_position_embeddings, ", s.context, ", or null");
  for (const char* step : {"decoder_sparse_step", "moe_layer_freq"})
    WEFT_CHECK(f.number(step, 1) == 1, what, ": ", step, " is ", f.number(step), "; need experts in each layer, 1");
  WEFT_CHECK(!f.has("mlp_only_layers") || json["mlp_only_layers"].empty(), what,
             ": mlp_only_layers has layers; need experts in each layer");
  if (kind.experts) {
    s.moe = true;
    s.experts = f.number(kind.experts);
    s.top_k = f.number("num_experts_per_tok");
    s.expert_ffn = f.number(kind.expert_ffn);
    if (kind.dense_first) s.dense_layers = f.number(kind.dense_first, 0);
    const int64_t shared = kind.shared ? f.number(kind.shared, 0) : 0;
    WEFT_CHECK(shared >= 0 && shared <= 1024, what, ": n_shared_experts is ", shared, "; need a number from 0 to 1024");
    WEFT_CHECK(s.expert_ffn >= 0 && s.expert_ffn <= 1 << 22, what, ": ", kind.expert_ffn, " is ", s.expert_ffn,
               "; need a number from 0 to ", 1 << 22);
    s.shared_ffn = kind.shared_ffn ? f.number(kind.shared_ffn) : shared * s.expert_ffn;
    names.experts = kind.experts;
    names.expert_ffn = kind.expert_ffn;
    names.shared_ffn = kind.shared_ffn ? kind.shared_ffn : "the width of all n_shared_experts";
    names.dense_layers = kind.dense_first ? kind.dense_first : "";
  }
  check_sizes(s, names);
  return hf_model_shape(s);
}

}  // namespace weft::planner
