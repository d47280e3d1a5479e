// Damaged config.json texts are read or refused.
#include <gtest/gtest.h>

#include "framework/testing/fuzz.h"
#include "tools/plan/model/shape.h"

namespace weft::planner {
namespace {

TEST(ConfigJson, DamagedTextsAreReadOrRefused) {
  testing::fuzz({.seeds = {R"({"model_type": "qwen2", "vocab_size": 152064, "max_position_embeddings": 32768,
                              "num_hidden_layers": 64, "hidden_size": 5120, "num_attention_heads": 40,
                              "num_key_value_heads": 8, "intermediate_size": 27648, "tie_word_embeddings": false})",
                           R"({"model_type": "gpt2", "vocab_size": 50257, "n_positions": 1024, "n_layer": 12,
                              "n_embd": 768, "n_head": 12, "n_inner": null})",
                           R"({"model_type": "qwen3_moe", "vocab_size": 151936, "max_position_embeddings": 40960,
                              "num_hidden_layers": 48, "hidden_size": 2048, "num_attention_heads": 32, "head_dim": 128,
                              "num_key_value_heads": 4, "intermediate_size": 6144, "num_experts": 128,
                              "num_experts_per_tok": 8, "moe_intermediate_size": 768})"},
                 .damage = [](std::string& s, testing::FuzzRandom& r) { testing::damage_bytes(s, r); },
                 .read =
                     [](const std::string& s) {
                       const ModelShape m = hf_shape(s, "config.json");
                       WEFT_BUG_IF(m.layers() < 1 || m.heads < 1, "a shape without layers");
                       WEFT_BUG_IF(m.parameters() < 1 || m.multiplying_parameters() < 1 ||
                                       m.training_flops(m.context) <= 0 || m.kv_bytes(2) <= 0 || m.used_share() <= 0,
                                   "counts of a shape overflow");
                     }});
}

}  // namespace
}  // namespace weft::planner
