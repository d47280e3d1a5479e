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
  return {{"vocab_size", "vocab", nullptr, "vocab_size"},
          {"max_position_embeddings", "context", nullptr, "context_length"},
          {"num_hidden_layers", "layers", nullptr, "block_count"},
          {"num_attention_heads", "heads", nullptr, "attention.head_count"},
          {"num_key_value_heads", "kv_heads", "=heads", "attention.head_count_kv"},
          {"hidden_size", "dim", nullptr, "embedding_length"},
          {"head_dim", "head_dim", missing.head_dim, "attention.key_length"},
          {"tie_word_embeddings", "tied", missing.tied},
          {"rms_norm_eps", "norm_eps", missing.eps, "attention.layer_norm_rms_epsilon"}};
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
  return {
      {"tok.weight", "embed_tokens.weight", Layout::kSame, "token_embd.weight"},
      {"blocks.{}.norm1.weight", "layers.{}.input_layernorm.weight", Layout::kSame, "blk.{}.attn_norm.weight"},
      {"blocks.{}.attn.qkv.weight", "layers.{}.self_attn.q_proj.weight", Layout::kQ, "blk.{}.attn_q.weight"},
      {"blocks.{}.attn.qkv.weight", "layers.{}.self_attn.k_proj.weight", Layout::kK, "blk.{}.attn_k.weight"},
      {"blocks.{}.attn.qkv.weight", "layers.{}.self_attn.v_proj.weight", Layout::kV, "blk.{}.attn_v.weight"},
      {"blocks.{}.attn.qkv.bias", "layers.{}.self_attn.q_proj.bias", Layout::kQ, "blk.{}.attn_q.bias"},
      {"blocks.{}.attn.qkv.bias", "layers.{}.self_attn.k_proj.bias", Layout::kK, "blk.{}.attn_k.bias"},
      {"blocks.{}.attn.qkv.bias", "layers.{}.self_attn.v_proj.bias", Layout::kV, "blk.{}.attn_v.bias"},
      {"blocks.{}.attn.q_norm.weight", "layers.{}.self_attn.q_norm.weight", Layout::kSame, "blk.{}.attn_q_norm.weight"},
      {"blocks.{}.attn.k_norm.weight", "layers.{}.self_attn.k_norm.weight", Layout::kSame, "blk.{}.attn_k_norm.weight"},
      {"blocks.{}.attn.out.weight", "layers.{}.self_attn.o_proj.weight", Layout::kSame, "blk.{}.attn_output.weight"},
      {"blocks.{}.attn.out.bias", "layers.{}.self_attn.o_proj.bias", Layout::kSame, "blk.{}.attn_output.bias"},
      {"blocks.{}.norm2.weight", "layers.{}.post_attention_layernorm.weight", Layout::kSame, "blk.{}.ffn_norm.weight"},
      {"norm.weight", "norm.weight", Layout::kSame, "output_norm.weight"},
      {"head.weight", "lm_head.weight", Layout::kSame, "output.weight"}};
}

/// Tensors that follow from the configuration.
inline std::vector<const char*> decoder_ignored() {
  return {"layers.{}.self_attn.rotary_emb.inv_freq", "rotary_emb.inv_freq"};
}

}  // namespace weft::weights
