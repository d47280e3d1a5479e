// Damaged config.json texts are read or refused.
#include <gtest/gtest.h>

#include "framework/testing/fuzz.h"
#include "models/weights/config.h"
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

// Weights need more fields than a plan.
TEST(ConfigJson, DamagedTextsForWeightsAreReadOrRefused) {
  testing::fuzz({.seeds = {R"({"model_type": "llama", "vocab_size": 32000, "max_position_embeddings": 4096,
                              "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4,
                              "intermediate_size": 128, "rope_theta": 10000.0, "rope_scaling": {"type": "yarn",
                              "factor": 4.0, "original_max_position_embeddings": 1024, "mscale": 1.0,
                              "mscale_all_dim": 0.5}, "sliding_window": null})",
                           R"({"model_type": "smollm3", "vocab_size": 128256, "max_position_embeddings": 65536,
                              "num_hidden_layers": 4, "hidden_size": 64, "num_attention_heads": 4,
                              "intermediate_size": 128, "no_rope_layers": [1, 0, 1, 0],
                              "layer_types": ["full_attention", "full_attention"], "rope_parameters":
                              {"rope_theta": 2000000.0, "rope_type": "llama3", "factor": 8.0}})"},
                 .damage = [](std::string& s, testing::FuzzRandom& r) { testing::damage_bytes(s, r); },
                 .read =
                     [](const std::string& s) {
                       const auto c = weights::read_config(s, "config.json", weights::For::kWeights);
                       WEFT_BUG_IF(!c.family || !c.config.contains("rope_factor"), "a configuration without a field");
                     }});
}

}  // namespace
}  // namespace weft::planner
