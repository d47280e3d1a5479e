// The parts that the tables of the families with rotary positions share.
#pragma once
#include "models/weights/config.h"

namespace weft::weights {

using Fields = std::vector<Field>;
using Fixed = std::vector<std::pair<const char*, const char*>>;

/// The lists one after another.
template <class T>
std::vector<T> joined(std::vector<T> a, const std::vector<T>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

/// The values that transformers uses for missing fields, if a model_type has other ones.
struct Missing {
  const char* tied = "false";
  const char* eps = "1e-6";
  const char* head_dim = "0";
};

/// Fields of sizes, without the hidden size.
inline Fields decoder_fields(const Missing& missing = {}) {
  return {{"vocab_size", "vocab"},
          {"max_position_embeddings", "context"},
          {"num_hidden_layers", "layers"},
          {"num_attention_heads", "heads"},
          {"num_key_value_heads", "kv_heads", "=heads"},
          {"hidden_size", "dim"},
          {"head_dim", "head_dim", missing.head_dim},
          {"tie_word_embeddings", "tied", missing.tied},
          {"rms_norm_eps", "norm_eps", missing.eps}};
}

/// Weft's feed-forward layers are SwiGLU without biases; rotary positions cover whole heads, and keys and values are
/// whole.
inline std::vector<Refused> decoder_refused() {
  return {{"hidden_act", "silu"},
          {"mlp_bias", "false", true},
          {"pretraining_tp", "1"},
          {"partial_rotary_factor", "1"},
          {"kv_lora_rank", "", true}};
}

/// `more` with the parts that all kinds have; it contains the parts that only this kind has.
inline Kind decoder_kind(const char* model_type, Fields fields, Fixed fixed, Kind more) {
  more.model_type = model_type;
  more.fields = std::move(fields);
  more.fixed = std::move(fixed);
  more.refused = joined(decoder_refused(), more.refused);
  if (more.rope_theta == 0) more.rope_theta = 10000;
  return more;
}

/// Norms, attention, embedding and head.
inline std::vector<Row> decoder_rows() {
  return {{"tok.weight", "embed_tokens.weight"},
          {"blocks.{}.norm1.weight", "layers.{}.input_layernorm.weight"},
          {"blocks.{}.attn.qkv.weight", "layers.{}.self_attn.q_proj.weight", Layout::kQ},
          {"blocks.{}.attn.qkv.weight", "layers.{}.self_attn.k_proj.weight", Layout::kK},
          {"blocks.{}.attn.qkv.weight", "layers.{}.self_attn.v_proj.weight", Layout::kV},
          {"blocks.{}.attn.qkv.bias", "layers.{}.self_attn.q_proj.bias", Layout::kQ},
          {"blocks.{}.attn.qkv.bias", "layers.{}.self_attn.k_proj.bias", Layout::kK},
          {"blocks.{}.attn.qkv.bias", "layers.{}.self_attn.v_proj.bias", Layout::kV},
          {"blocks.{}.attn.q_norm.weight", "layers.{}.self_attn.q_norm.weight"},
          {"blocks.{}.attn.k_norm.weight", "layers.{}.self_attn.k_norm.weight"},
          {"blocks.{}.attn.out.weight", "layers.{}.self_attn.o_proj.weight"},
          {"blocks.{}.attn.out.bias", "layers.{}.self_attn.o_proj.bias"},
          {"blocks.{}.norm2.weight", "layers.{}.post_attention_layernorm.weight"},
          {"norm.weight", "norm.weight"},
          {"head.weight", "lm_head.weight"}};
}

/// Tensors that follow from the configuration.
inline std::vector<const char*> decoder_ignored() {
  return {"layers.{}.self_attn.rotary_emb.inv_freq", "rotary_emb.inv_freq"};
}

}  // namespace weft::weights
