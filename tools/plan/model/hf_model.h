// The model that a Hugging Face config.json describes, made of models/nn for its shape.
#pragma once
#include "tools/plan/model/shape.h"

namespace weft::planner {

struct HfSizes {
  std::string name = {};
  bool gpt2 = false;  // GPT-2's layers with learned positions; else llama's
  bool moe = false;   // with experts
  int64_t vocab = 0, context = 0, layers = 0, dim = 0, heads = 0, kv_heads = 0, head_dim = 0;
  int64_t ffn = 0;  // hidden size of a dense layer
  bool tied = false;
  bool qkv_bias = false;  // biases of queries, keys and values
  bool qk_norm = false;   // norms of queries and keys by head
  int64_t experts = 0, top_k = 0, expert_ffn = 0, shared_ffn = 0;
  int64_t dense_layers = 0;  // number of first layers without experts
};

ModelShape hf_model_shape(const HfSizes& sizes);

}  // namespace weft::planner
