// Damaged files of transformers: config.json, an index, and names and shapes of tensors. Each is read, or refused.
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>

#include "framework/io/file.h"
#include "framework/io/safetensors.h"
#include "framework/testing/fuzz.h"
#include "models/weights/load.h"

namespace weft::weights {
namespace {

using weft::testing::FuzzRandom;

const char* const kConfigs[] = {
    R"({"model_type": "llama", "vocab_size": 40, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2,
 "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": null, "max_position_embeddings": 32,
 "rms_norm_eps": 1e-5, "tie_word_embeddings": false, "torch_dtype": "bfloat16", "eos_token_id": [1, 2],
 "rope_parameters": {"rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0, "low_freq_factor": 1.0,
 "high_freq_factor": 4.0, "original_max_position_embeddings": 16}})",
    R"({"model_type": "qwen2", "vocab_size": 40, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2,
 "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64, "rms_norm_eps": 1e-6,
 "rope_theta": 10000.0, "rope_scaling": {"type": "yarn", "factor": 2, "beta_fast": 16, "mscale": 0.5},
 "use_sliding_window": false, "sliding_window": 16, "max_window_layers": 2, "layer_types": ["full_attention"]})",
    R"({"model_type": "smollm3", "vocab_size": 40, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 4,
 "num_attention_heads": 4, "max_position_embeddings": 32, "rms_norm_eps": 1e-5, "no_rope_layers": [1, 1, 1, 0],
 "no_rope_layer_interval": 4, "rope_theta": 1e6})",
    R"({"model_type": "gpt2", "vocab_size": 40, "n_positions": 32, "n_embd": 16, "n_layer": 2, "n_head": 4,
 "n_inner": null, "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5, "attn_pdrop": 0.1,
 "id2label": {"0": "a"}})",
    R"({"model_type": "qwen3_moe", "vocab_size": 40, "hidden_size": 16, "moe_intermediate_size": 24,
 "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "num_local_experts": 4,
 "num_experts_per_tok": 2, "norm_topk_prob": true, "max_position_embeddings": 32, "rms_norm_eps": 1e-6,
 "mlp_only_layers": [], "decoder_sparse_step": 1, "rope_theta": 1e6})",
};

TEST(ReadersFuzz, Configs) {
  const std::vector<std::string_view> words = {"{",
                                               "}",
                                               "[",
                                               "]",
                                               "\"",
                                               ":",
                                               ",",
                                               "null",
                                               "true",
                                               "false",
                                               "0",
                                               "-1",
                                               "1e400",
                                               "1e-400",
                                               "2.5",
                                               "\"x\"",
                                               "\"mixtral\"",
                                               "\\u0000",
                                               "\\ud800",
                                               "[[[[[",
                                               "\"yarn\"",
                                               "\"linear\"",
                                               "rope_scaling",
                                               "type",
                                               "factor",
                                               "head_dim",
                                               "vocab_size",
                                               "9223372036854775808",
                                               "rope_parameters",
                                               "sliding_window",
                                               "4096"};
  for (const For use : {For::kWeights, For::kPlan})
    weft::testing::fuzz({.seeds = {std::begin(kConfigs), std::end(kConfigs)},
                         .damage = [&](std::string& s, FuzzRandom& r) { weft::testing::damage_text(s, r, words); },
                         .read =
                             [&](const std::string& text) {
                               const HfConfig c = read_config(text, "config.json", use);
                               EXPECT_TRUE(c.family && c.kind);
                               with_names(c, "config.json", [&] {
                                 number(c.config, "layers", nn::kLayers);
                                 const Sizes sizes(c.config);
                                 EXPECT_GT(sizes.heads, 0);
                                 EXPECT_GT(sizes.kv_heads, 0);
                                 EXPECT_GE(sizes.head_dim, 0);
                               });
                               for (const std::string& note : c.notes("config.json"))
                                 EXPECT_EQ(note.find('\n'), note.npos) << note;
                             },
                         .names = "config.json"});
}

TEST(ReadersFuzz, Indexes) {
  const std::string folder = ::testing::TempDir() + "/fuzz_index", index = "/model.safetensors.index.json";
  io::make_folders(folder);
  std::vector<float> data(64, 1.f);
  std::vector<io::NamedView> tensors;
  for (const char* name : {"a", "b", "layers.0.x", "layers.1.x"})
    tensors.push_back({name, {data.data(), kFloat32, {4, 4}, {4, 1}}});
  io::write_safetensors_folder(folder, "model", tensors, {}, 80);
  const std::string seed = io::read_file(folder + index);
  io::remove_all(folder + index);
  weft::testing::FuzzFile file(folder + index);
  const std::vector<std::string_view> words = {"{",
                                               "}",
                                               "[",
                                               "]",
                                               "\"",
                                               ":",
                                               ",",
                                               "null",
                                               "..",
                                               "/",
                                               "\\u0000",
                                               "weight_map",
                                               "a",
                                               "b",
                                               "\"a\": \"b\"",
                                               "model-00001-of-00004.safetensors",
                                               "model-00002-of-00004.safetensors",
                                               "../x",
                                               "total_size"};
  weft::testing::fuzz({.seeds = {seed},
                       .damage = [&](std::string& s, FuzzRandom& r) { weft::testing::damage_text(s, r, words); },
                       .read =
                           [&](const std::string& text) {
                             file.set(text);
                             const auto source = open_safetensors(file.path());
                             std::vector<std::byte> room;
                             for (const std::string& name : source->names()) {
                               source->check(name);
                               const int64_t n = source->find(name)->shape.numel();
                               EXPECT_EQ(static_cast<const float*>(source->read(name, n - 1, n, room))[0], 1.f);
                             }
                           },
                       .names = folder});
}

// Tensors without data, from lines "name extent extent ...".
class Listed final : public WeightSource {
 public:
  explicit Listed(const std::string& text) {
    for (size_t at = 0; at < text.size();) {
      const size_t end = std::min(text.find('\n', at), text.size());
      std::string line = text.substr(at, end - at);
      at = end + 1;
      const size_t space = std::min(line.find(' '), line.size());
      WeightInfo info{kFloat32, {}};
      const char* p = line.c_str() + space;
      for (char* next = nullptr; info.shape.size() < kMaxDims; p = next) {
        const int64_t extent = std::strtoll(p, &next, 10);
        if (next == p) break;
        info.shape.push_back(std::abs(extent) % 1000);
      }
      tensors_.emplace(line.substr(0, space), info);
    }
  }
  const std::string& path() const override { return path_; }
  std::vector<std::string> names() const override {
    std::vector<std::string> names;
    for (const auto& [name, info] : tensors_) names.push_back(name);
    return names;
  }
  std::optional<WeightInfo> find(std::string_view name) const override {
    const auto it = tensors_.find(std::string(name));
    return it == tensors_.end() ? std::nullopt : std::optional(it->second);
  }
  const void* read(std::string_view, int64_t, int64_t, std::vector<std::byte>&) const override { return nullptr; }
  void release(std::string_view) const override {}

 private:
  const std::string path_ = "model.safetensors";
  std::map<std::string, WeightInfo> tensors_;
};

TEST(ReadersFuzz, NamesAndShapes) {
  // A layer of a mixture of experts, with its cells: each element of each cell is set once, or the file is refused.
  const nn::ConfigMap config{{"heads", "4"}, {"kv_heads", "2"}, {"head_dim", "4"},
                             {"dim", "16"},  {"experts", "2"},  {"tied", "false"}};
  const std::vector<std::pair<std::string, Shape>> cells{{"blocks.0.attn.qkv.weight", {32, 16}},
                                                         {"blocks.0.attn.out.weight", {16, 16}},
                                                         {"blocks.0.moe.w1", {2, 16, 24}},
                                                         {"blocks.0.moe.w2", {2, 24, 16}}};
  const std::string layer = "model.layers.0.", experts = layer + "block_sparse_moe.experts.";
  std::string seed = str_cat(layer, "self_attn.q_proj.weight 16 16\n", layer, "self_attn.k_proj.weight 8 16\n", layer,
                             "self_attn.v_proj.weight 8 16\n", layer, "self_attn.o_proj.weight 16 16\n");
  for (const char* e : {"0", "1"}) seed += str_cat(experts, e, ".w1.weight 24 16\n", experts, e, ".w2.weight 16 24\n");
  const std::vector<std::string_view> words = {"model.",
                                               "transformer.",
                                               "layers.",
                                               "0",
                                               "1",
                                               ".",
                                               "weight",
                                               "{}",
                                               "{e}",
                                               " ",
                                               "lm_head.weight 40 16",
                                               "experts",
                                               "mlp",
                                               "block_sparse_moe",
                                               "gate_up_proj",
                                               "qweight",
                                               "lora_A",
                                               "w1",
                                               "w2",
                                               "-1",
                                               "9999999999999999999"};
  weft::testing::fuzz({.seeds = {seed},
                       .damage = [&](std::string& s, FuzzRandom& r) { weft::testing::damage_text(s, r, words); },
                       .read =
                           [&](const std::string& text) {
                             const Listed file(text);
                             std::vector<std::string> warnings;
                             const auto plans = plan_cells(file, moe_family(), config, cells, &warnings);
                             for (const CellPlan& plan : plans) {
                               int64_t n = 0;
                               for (const Piece& p : plan.pieces) {
                                 int64_t box = 1;
                                 for (const int64_t extent : p.extents) box *= extent;
                                 n += box;
                               }
                               EXPECT_EQ(n, plan.shape.numel()) << plan.cell;
                             }
                           },
                       .names = "model.safetensors"});
}

}  // namespace
}  // namespace weft::weights
