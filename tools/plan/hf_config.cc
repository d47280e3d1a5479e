#include "tools/plan/hf_config.h"

#include "framework/io/json.h"

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

}  // namespace

ModelShape hf_shape(std::string_view text, std::string_view what) {
  const io::Json json = io::parse_json(text, what);
  const std::string type = io::json_get<std::string>(json, "model_type", what);
  const Fields f(json, what);
  ModelShape s{.name = std::string(what), .family = "llama"};
  s.vocab = f.number("vocab_size");
  if (type == "gpt2") {
    s.family = "gpt";
    s.context = s.positions = f.number("n_positions");
    s.layers = f.number("n_layer");
    s.dim = f.number("n_embd");
    s.heads = s.kv_heads = f.number("n_head");
    s.ffn = f.number("n_inner", 4 * s.dim);
    s.gated = false;
    s.bias = s.layer_norm = true;
    s.tied = f.flag("tie_word_embeddings", true);
    WEFT_CHECK(s.heads > 0, what, ": n_head is ", s.heads, "; need 1 or more");
    s.head_dim = s.dim / s.heads;
    check_shape(s);
    return s;
  }
  s.context = f.number("max_position_embeddings");
  s.layers = f.number("num_hidden_layers");
  s.dim = f.number("hidden_size");
  s.heads = f.number("num_attention_heads");
  s.kv_heads = f.number("num_key_value_heads", s.heads);
  s.ffn = f.number("intermediate_size");
  s.tied = f.flag("tie_word_embeddings", false);
  WEFT_CHECK(s.heads > 0, what, ": num_attention_heads is ", s.heads, "; need 1 or more");
  s.head_dim = f.number("head_dim", s.dim / s.heads);
  s.qkv_bias = type == "qwen2" || f.flag("attention_bias", false);
  s.qk_norm = type.starts_with("qwen3");
  for (const char* experts : {"num_local_experts", "num_experts", "n_routed_experts"})
    if (f.has(experts)) s.experts = f.number(experts);
  if (s.experts > 0) {
    s.family = "moe";
    s.top_k = f.number("num_experts_per_tok");
    s.expert_ffn = f.number("moe_intermediate_size", s.ffn);
    s.dense_layers = f.number("first_k_dense_replace", 0);
    const int64_t shared = f.number("n_shared_experts", 0);
    WEFT_CHECK(shared >= 0 && shared <= 1024, what, ": n_shared_experts is ", shared, "; need a number from 0 to 1024");
    WEFT_CHECK(s.expert_ffn >= 0 && s.expert_ffn <= 1 << 22, what, ": moe_intermediate_size is ", s.expert_ffn,
               "; need a number from 0 to ", 1 << 22);
    s.shared_ffn = f.number("shared_expert_intermediate_size", shared * s.expert_ffn);
  }
  check_shape(s);
  return s;
}

}  // namespace weft::planner
