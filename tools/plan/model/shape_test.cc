// Shapes have the parameters and the FLOPs of the models that they stand for.
#include "tools/plan/model/shape.h"

#include <gmock/gmock.h>

#include "framework/base/testing/error_of.h"
#include "models/hf/families.h"

namespace weft::planner {
namespace {

using ::testing::HasSubstr;
using weft::testing::error_of;

TEST(Shape, HasTheParametersOfEveryPreset) {
  for (const nn::ModelFamily* f : model_families())
    for (const std::string& preset : f->presets) {
      const auto model = f->make(f->preset(preset));
      const ModelShape s = preset_shape(preset);
      EXPECT_EQ(s.parameters(), model->num_parameters()) << preset;
      if (s.parameters() > 20'000'000) continue;
      const int64_t length = std::min<int64_t>(s.context, 64);
      EXPECT_DOUBLE_EQ(s.training_flops(length), model->flops_per_token(length)) << preset;
    }
}

// The closed forms of a layer's products.
TEST(Shape, HasTheProductsOfTheGraph) {
  const auto is = [](const Product& p, Product::Split split, int64_t in, int64_t out, int64_t rows, int64_t experts) {
    EXPECT_EQ(p.split, split);
    EXPECT_EQ(p.in, in);
    EXPECT_EQ(p.out, out);
    EXPECT_EQ(p.rows, rows);
    EXPECT_EQ(p.experts, experts);
  };
  const ModelShape llama = preset_shape("llama-8b");
  ASSERT_EQ(llama.blocks.size(), 1u);
  EXPECT_EQ(llama.blocks[0].layers, 32);
  const std::vector<Product>& dense = llama.blocks[0].products;
  ASSERT_EQ(dense.size(), 4u);
  is(dense[0], Product::kColumns, 4096, 4096 + 2 * 1024, 1, 0);
  EXPECT_EQ(dense[0].kv, 2 * 1024);
  is(dense[1], Product::kRows, 4096, 4096, 1, 0);
  EXPECT_TRUE(dense[1].attended);
  is(dense[2], Product::kColumns, 4096, 2 * 14336, 1, 0);
  is(dense[3], Product::kRows, 14336, 4096, 1, 0);
  EXPECT_EQ(dense[0].stage, dense[1].stage);
  EXPECT_EQ(dense[2].stage, dense[3].stage);
  EXPECT_NE(dense[0].stage, dense[2].stage);
  // Rotation of queries and keys; two additions to the residual stream with the norm after it; silu(gate) * up.
  const Move moves[] = {{4096 + 1024, 4096 + 1024, true}, {8192, 8192, false}, {2 * 14336, 14336, false}, {8192, 8192}};
  ASSERT_EQ(llama.blocks[0].moves.size(), std::size(moves));
  for (size_t i = 0; i < std::size(moves); ++i) {
    EXPECT_EQ(llama.blocks[0].moves[i].read, moves[i].read) << i;
    EXPECT_EQ(llama.blocks[0].moves[i].written, moves[i].written) << i;
    EXPECT_EQ(llama.blocks[0].moves[i].linear, moves[i].linear) << i;
  }

  EXPECT_EQ(preset_shape("gpt2").blocks[0].moves.size(), 3u);  // products add their biases themselves

  const ModelShape moe = preset_shape("deepseek-moe-16b");
  ASSERT_EQ(moe.blocks.size(), 2u);
  EXPECT_EQ(moe.blocks[0].layers, 1);
  EXPECT_EQ(moe.blocks[1].layers, 27);
  const std::vector<Product>& experts = moe.blocks[1].products;
  ASSERT_EQ(experts.size(), 7u);
  is(experts[2], Product::kWhole, 2048, 64, 1, 0);
  is(experts[3], Product::kColumns, 2048, 2 * 1408, 6, 64);
  is(experts[4], Product::kRows, 1408, 2048, 6, 64);
  is(experts[5], Product::kColumns, 2048, 2 * 2816, 1, 0);
  is(experts[6], Product::kRows, 2816, 2048, 1, 0);
  for (size_t i = 2; i < 7; ++i) EXPECT_EQ(experts[i].stage, experts[2].stage);
}

TEST(Shape, OfOtherSizes) {
  const ModelShape moe = preset_shape("deepseek-moe-16b");
  for (int64_t layers : {1, 2, 28, 40}) {
    const nn::ConfigMap fields{{"layers", std::to_string(layers)}};
    EXPECT_EQ(moe.with_layers(layers).parameters(), preset_shape("deepseek-moe-16b", fields).parameters()) << layers;
  }
  EXPECT_EQ(preset_shape("llama-8b").with_kv_heads(2).parameters(),
            preset_shape("llama-8b", {{"kv_heads", "2"}}).parameters());
  // gpt2 has 12 layers of 12 heads of 64, and biases: 6 heads less of keys and of values.
  const ModelShape gpt = preset_shape("gpt2");
  EXPECT_EQ(gpt.parameters() - gpt.with_kv_heads(6).parameters(), 12 * 2 * 6 * 64 * (768 + 1));
}

TEST(Shape, KeysAndValues) {
  EXPECT_EQ(preset_shape("llama-8b").kv_bytes(2), 2 * 32 * 8 * 128 * 2);
  EXPECT_EQ(preset_shape("qwen-32b").kv_bytes(2), 2 * 64 * 8 * 128 * 2);
}

TEST(Shape, OfConfigJson) {
  const ModelShape q = hf_shape(R"({"model_type": "qwen2", "vocab_size": 152064, "max_position_embeddings": 32768,
      "num_hidden_layers": 64, "hidden_size": 5120, "num_attention_heads": 40, "num_key_value_heads": 8,
      "intermediate_size": 27648, "tie_word_embeddings": false})",
                                "config.json");
  EXPECT_EQ(q.parameters(), 32763876352);  // Qwen2.5-32B
  EXPECT_EQ(q.parameters(), preset_shape("qwen-32b").parameters());
  const ModelShape g = hf_shape(R"({"model_type": "gpt2", "vocab_size": 50257, "n_positions": 1024, "n_layer": 12,
      "n_embd": 768, "n_head": 12, "n_inner": null})",
                                "config.json");
  EXPECT_EQ(g.parameters(), 124439808);
  for (const char* experts : {"num_experts", "num_local_experts"}) {  // names in transformers 4 and 5
    const ModelShape m =
        hf_shape(str_cat(R"({"model_type": "qwen3_moe", "vocab_size": 151936, "max_position_embeddings": 40960,
            "num_hidden_layers": 48, "hidden_size": 2048, "num_attention_heads": 32, "head_dim": 128,
            "num_key_value_heads": 4, "intermediate_size": 6144, "num_experts_per_tok": 8,
            "moe_intermediate_size": 768, "tie_word_embeddings": false, ")",
                         experts, R"(": 128})"),
                 "config.json");
    EXPECT_EQ(m.parameters(), 30532122624) << experts;  // Qwen3-30B-A3B
  }
  const ModelShape l = hf_shape(R"({"model_type": "llama", "vocab_size": 32000, "max_position_embeddings": 4096,
      "num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32, "intermediate_size": 11008,
      "attention_bias": true})",
                                "config.json");
  EXPECT_EQ(l.parameters(), 6738939904);  // biases of queries, keys, values and outputs
}

// A config.json with llama's fields and others.
ModelShape config_of(const std::string& type, const std::string& more) {
  return hf_shape(str_cat(R"({"model_type": ")", type, R"(", "vocab_size": 32000, "max_position_embeddings": 32768,
      "num_hidden_layers": 4, "hidden_size": 1024, "num_attention_heads": 16, "num_key_value_heads": 8,
      "intermediate_size": 4096)",
                          more, "}"),
                  "c");
}

// The rows of the last dense product of the last layer: of the expert for every token.
int64_t shared_ffn(const ModelShape& s) { return s.blocks.back().products.back().in; }

TEST(Shape, OfEachModelType) {
  EXPECT_FALSE(config_of("llama", "").tied);
  EXPECT_TRUE(config_of("gemma", "").tied);
  const int64_t plain = config_of("llama", "").parameters();
  EXPECT_EQ(config_of("qwen2", "").parameters() - plain, 4 * (1024 + 2 * 512));  // biases of queries, keys and values
  EXPECT_EQ(config_of("qwen2", "").with_kv_heads(2).parameters(),
            config_of("llama", "").with_kv_heads(2).parameters() + 4 * (1024 + 2 * 2 * 64));
  EXPECT_EQ(config_of("qwen3", R"(, "head_dim": 64)").parameters() - plain, 4 * 2 * 64);  // norms of queries and keys
  EXPECT_EQ(config_of("qwen3", "").head_dim, 128);
  const ModelShape q = config_of("qwen2_moe", R"(, "num_experts": 8, "num_experts_per_tok": 2,
      "moe_intermediate_size": 512, "shared_expert_intermediate_size": 2048)");
  EXPECT_EQ(shared_ffn(q), 2048);
  const ModelShape d = config_of("deepseek", R"(, "n_routed_experts": 8, "num_experts_per_tok": 2,
      "moe_intermediate_size": 512, "n_shared_experts": 2, "first_k_dense_replace": 1, "moe_layer_freq": 1)");
  EXPECT_EQ(shared_ffn(d), 1024);
  ASSERT_EQ(d.blocks.size(), 2u);
  EXPECT_EQ(d.blocks[0].experts(), 0);
  EXPECT_EQ(d.blocks[1].layers, 3);
  // A window that is not used, or not shorter than the context.
  EXPECT_EQ(config_of("qwen2", R"(, "sliding_window": 4096, "use_sliding_window": false)").layers(), 4);
  EXPECT_EQ(config_of("mistral", R"(, "sliding_window": 32768)").layers(), 4);
  EXPECT_EQ(config_of("mistral", R"(, "sliding_window": null)").layers(), 4);
}

TEST(Shape, RefusesWhatItDoesNotHave) {
  const auto refused = [](const std::string& type, const std::string& more) {
    return error_of([&] { config_of(type, more); });
  };
  EXPECT_THAT(refused("deepseek_v3", ""),
              HasSubstr("c: field 'model_type' is 'deepseek_v3'; need one of gpt2, llama, mistral"));
  EXPECT_THAT(refused("gpt_neox", ""), HasSubstr("c: field 'model_type' is 'gpt_neox'"));
  EXPECT_THAT(refused("llama", R"(, "kv_lora_rank": 512)"), HasSubstr("kv_lora_rank"));
  EXPECT_THAT(refused("mistral", R"(, "sliding_window": 4096)"),
              HasSubstr("c: field 'sliding_window' is 4096; need attention"));
  EXPECT_THAT(refused("mistral", ""), HasSubstr("c: field 'sliding_window' is 4096"));  // the default of transformers
  EXPECT_THAT(refused("qwen2", R"(, "sliding_window": 4096, "use_sliding_window": true)"), HasSubstr("sliding_window"));
  const std::string experts = R"(, "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 512)";
  EXPECT_THAT(refused("qwen3_moe", experts + R"(, "mlp_only_layers": [0])"),
              HasSubstr("field 'mlp_only_layers' is [0]; need []"));
  EXPECT_THAT(refused("qwen3_moe", experts + R"(, "decoder_sparse_step": 2)"),
              HasSubstr("field 'decoder_sparse_step' is 2; need 1"));
  // Each field is in its range; their product is not.
  EXPECT_THAT(refused("qwen3_moe", R"(, "num_experts": 65536, "num_experts_per_tok": 2,
      "moe_intermediate_size": 4194304)"),
              HasSubstr("need at most 1e+15"));
}

// The file's names, and values that transformers refuses.
TEST(Shape, SizesThatDoNotFitGetOneSentence) {
  const auto refused = [](const std::string& type, const std::string& more) {
    return error_of([&] { config_of(type, more); });
  };
  const auto gpt2 = [](const char* dim, const char* layers) {
    return error_of([&] {
      hf_shape(str_cat(R"({"model_type": "gpt2", "vocab_size": 50257, "n_positions": 1024, "n_layer": )", layers,
                       R"(, "n_embd": )", dim, R"(, "n_head": 12})"),
               "c");
    });
  };
  EXPECT_THAT(gpt2("770", "12"), HasSubstr("c: field 'n_embd' is '770'; need a multiple of heads, 12"));
  EXPECT_THAT(gpt2("768", "0"), HasSubstr("c: field 'n_layer' is '0'; need a whole number from 1 to 10000"));
  // A repeated field is refused, so these texts leave out the changed fields.
  const auto llama = [](const std::string& sizes) {
    return str_cat(R"({"model_type": "llama", "vocab_size": 32000, "max_position_embeddings": 8192,
        "num_hidden_layers": 4, "num_attention_heads": 32, )",
                   sizes, "}");
  };
  EXPECT_THAT(error_of([&] { hf_shape(llama(R"("hidden_size": 4100, "intermediate_size": 8)"), "c"); }),
              HasSubstr("c: field 'hidden_size' is '4100'; need a multiple of heads, 32"));
  EXPECT_EQ(hf_shape(llama(R"("hidden_size": 4100, "head_dim": 128, "intermediate_size": 8)"), "c").head_dim, 128);
  EXPECT_THAT(error_of([&] { hf_shape(llama(R"("hidden_size": 4096, "intermediate_size": 0)"), "c"); }),
              HasSubstr("c: field 'intermediate_size' is '0'; need a whole number from 1 to"));
  EXPECT_THAT(refused("qwen3_moe", R"(, "num_experts": 8, "num_experts_per_tok": 0, "moe_intermediate_size": 512)"),
              HasSubstr("c: field 'num_experts_per_tok' is '0'; need a whole number from 1 to"));
  EXPECT_THAT(refused("qwen3_moe", R"(, "num_experts": 8, "num_experts_per_tok": 9, "moe_intermediate_size": 512)"),
              HasSubstr("top_k 9"));
  EXPECT_THAT(refused("qwen3_moe", R"(, "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 0)"),
              HasSubstr("c: field 'moe_intermediate_size' is '0'; need a whole number from 1 to"));
  EXPECT_THAT(refused("qwen3_moe", R"(, "num_experts": 0, "num_experts_per_tok": 2, "moe_intermediate_size": 8)"),
              HasSubstr("c: field 'num_experts' is '0'; need a whole number from 1 to"));
}

TEST(Shape, WrongOnesGetOneSentence) {
  EXPECT_THAT(error_of([] { preset_shape("llama-7"); }),
              HasSubstr("model: got 'llama-7'; need one of gpt_shakespeare"));
  EXPECT_THAT(error_of([] { hf_shape("{}", "c"); }), HasSubstr("\"model_type\" is missing"));
  EXPECT_THAT(error_of([] {
                hf_shape(R"({"model_type": "llama", "vocab_size": 10, "max_position_embeddings": 1,
                  "num_hidden_layers": 1, "hidden_size": 9, "num_attention_heads": 3, "num_key_value_heads": 2,
                  "intermediate_size": 8})",
                         "c");
              }),
              HasSubstr("c: field 'num_key_value_heads' is '2'; need a divisor of heads, 3"));
}

}  // namespace
}  // namespace weft::planner
