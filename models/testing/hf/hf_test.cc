// Models of transformers: logits, gradients and the losses of ten steps equal the results of transformers (make_hf.py).
#include <gtest/gtest.h>

#include <cstdio>
#include <ctime>
#include <map>
#include <sstream>

#include "framework/base/testing/error_of.h"
#include "framework/io/file.h"
#include "models/hf/families.h"
#include "models/testing/fixture.h"
#include "models/weights/load.h"
#include "models/weights/pieces.h"
#include "weft.h"

namespace weft::testing {
namespace {

using weights::HfModel;

constexpr double kTolerance = 1e-4;  // in the measure of fixture.h
constexpr double kLr = 1e-3;

const char* const kNames[] = {"gpt2",    "gpt2_no_prefix", "llama3", "llama_yarn_old", "llama_bf16",    "mistral",
                              "smollm3", "qwen2",          "qwen3",  "mixtral",        "mixtral_fused", "qwen3_moe"};

std::string folder_of(const std::string& name) { return "models/testing/hf/fixtures/" + name; }

std::unique_ptr<nn::LanguageModel> model_of(const HfModel& hf) {
  const nn::ModelFamily& f = family_named(hf.config.family->program);
  // Every field of the configuration is one that config.json or the table decides.
  const nn::ConfigMap base = f.preset(f.default_preset);
  for (const auto& [field, value] : base) EXPECT_TRUE(hf.config.config.contains(field)) << field;
  return f.make(f.with_fields(base, hf.config.config));
}

// The tensors of a file whose names begin with "grad.", without it.
class Gradients final : public weights::WeightSource {
 public:
  explicit Gradients(const std::string& path) : file_(weights::open_safetensors(path)) {}
  const std::string& path() const override { return file_->path(); }
  std::vector<std::string> names() const override {
    std::vector<std::string> names;
    for (const std::string& n : file_->names())
      if (n.starts_with("grad.")) names.push_back(n.substr(5));
    return names;
  }
  std::optional<weights::WeightInfo> find(std::string_view name) const override { return file_->find(of(name)); }
  const void* read(std::string_view name, int64_t begin, int64_t end, std::vector<std::byte>& room) const override {
    return file_->read(of(name), begin, end, room);
  }
  void release(std::string_view) const override {}

 private:
  static std::string of(std::string_view name) { return str_cat("grad.", name); }
  const std::unique_ptr<weights::WeightSource> file_;
};

std::map<std::string, Tensor> gradients_of(const HfModel& hf, const nn::LanguageModel& model) {
  const Gradients file(hf.folder + "/expected.safetensors");
  std::vector<std::pair<std::string, Shape>> shapes;
  for (const auto& [name, p] : model.named_parameters()) shapes.emplace_back(name, p.shape());
  std::map<std::string, Tensor> grads;
  for (const auto& plan : weights::plan_cells(file, *hf.config.family, hf.config.config, shapes)) {
    const Tensor t = zeros(plan.shape);
    for (const auto& piece : plan.pieces) weights::copy_piece(file, piece, kFloat32, t.view_for_kernel().data);
    grads[plan.cell] = t;
  }
  return grads;
}

class Hf : public ::testing::TestWithParam<const char*> {};

TEST_P(Hf, EqualsTransformers) {
  const HfModel hf = weights::open_hf(folder_of(GetParam()));
  EXPECT_EQ(hf.config.not_known, std::vector<std::string>());
  const auto model = model_of(hf);
  std::vector<std::string> warnings;
  weights::load_weights(hf, model->named_cells(), &warnings);
  EXPECT_EQ(warnings, std::vector<std::string>());
  const nn::StateDict expected = load(hf.folder + "/expected.safetensors");
  const Tensor tokens = expected.at("tokens"), targets = expected.at("targets"), logits = expected.at("logits");
  EXPECT_LE(amax(abs(model->logits(tokens) - logits)).item<double>(), kTolerance * amax(abs(logits)).item<double>());

  const std::vector<Parameter> parameters = model->parameters();
  optim::AdamW opt(parameters, {.lr = kLr, .betas = {0.9, 0.95}, .eps = 1e-5, .weight_decay = 0.1});
  std::map<std::string, Tensor> grads;
  auto step = compile([&](Tensor x, Tensor y) {
    struct Out {
      Tensor loss;
      std::vector<Tensor> grads;
    } out;
    out.loss = model->loss(x, y).ce;
    out.grads = grad(out.loss, parameters);
    opt.step(out.grads);
    return out;
  });
  const std::vector<double> losses = expected.at("losses").to_vector<double>();
  for (size_t i = 0; i < losses.size(); ++i) {
    const auto out = step(tokens, targets);
    EXPECT_NEAR(out.loss.item<double>(), losses[i], kTolerance * losses[i]) << i;
    for (size_t k = 0; i == 0 && k < parameters.size(); ++k) grads[parameters[k].name()] = out.grads[k];
  }
  const Closeness g = gradient_closeness(grads, gradients_of(hf, *model));
  std::printf("%s: gradients within %.1e (%s)\n", GetParam(), g.worst, g.name.c_str());
  EXPECT_LE(g.worst, kTolerance) << g.name;
}
INSTANTIATE_TEST_SUITE_P(All, Hf, ::testing::ValuesIn(kNames), [](const auto& info) { return info.param; });

// The logits with a cache equal the logits without a cache, also in layers without rotary positions.
TEST(Hf, ACacheChangesNothing) {
  for (const char* name : {"smollm3", "qwen3", "qwen3_moe", "llama_yarn_old"}) {
    const HfModel hf = weights::open_hf(folder_of(name));
    const auto model = model_of(hf);
    weights::load_weights(hf, model->named_cells());
    model->eval();
    const Tensor tokens = load(hf.folder + "/expected.safetensors").at("tokens");
    const Tensor whole = model->logits(tokens);
    const nn::KvCache cache = model->make_cache(tokens.size(0), 16);
    const Tensor first = model->logits(tokens.slice(1, 0, 7), cache),
                 rest = model->logits(tokens.slice(1, 7, 12), cache);
    EXPECT_LE(amax(abs(cat({first, rest}, 1) - whole)).item<double>(), 1e-4) << name;
  }
}

// A change of config.json or of the tensors, and the one sentence that it gets.
struct Bad {
  const char* model;
  const char* change;  // FIELD=JSON; FIELD= removes it
  const char* error;
};
const Bad kBad[] = {
    {"llama3", "model_type=\"gpt_neox\"", "field 'model_type' is 'gpt_neox'; need one of gpt2, llama, mistral"},
    {"llama3", "model_type=", "field \"model_type\" is missing"},
    {"llama3", "hidden_act=\"gelu\"", "field 'hidden_act' is gelu; need silu"},
    {"llama3", "mlp_bias=true", "field 'mlp_bias' is true; need false"},
    {"llama3", "vocab_size=", "field 'vocab_size' is missing; need it for model_type llama"},
    {"llama3", "vocab_size=0", "field 'vocab_size' is '0'; need a whole number from 1 to"},
    {"llama3", "vocab_size=\"40x\"", "field 'vocab_size' is '40x'; need a whole number"},
    {"llama3", "num_key_value_heads=3", "field 'num_key_value_heads' is '3'; need a divisor of heads, 4"},
    {"llama3", "head_dim=6",
     "tensor 'model.layers.0.self_attn.q_proj.weight' is f32[16, 16]; need [24, 16] for heads 4 "
     "x head_dim 6 of config.json"},
    {"llama3", "head_dim=5", "rotary_tables: head_dim is 5; need an even number"},
    {"llama3", "num_hidden_layers=1", "9 tensors do not belong to the model: 'model.layers.1.input_layernorm.weight'"},
    {"llama3", "num_hidden_layers=3", "no tensor 'layers.2.input_layernorm.weight'; need it for blocks.2.norm1.weight"},
    {"llama3", "attention_bias=true", "no tensor 'layers.0.self_attn.q_proj.bias'; need it for blocks.0.attn.qkv.bias"},
    {"llama3", "rope_parameters={\"rope_type\": \"longrope\", \"rope_theta\": 1e4, \"factor\": 2}",
     "rope_parameters: field 'rope_type' is 'longrope'; need default, linear, llama3 or yarn"},
    {"llama3", "rope_parameters={\"rope_type\": \"linear\", \"rope_theta\": 1e4}",
     "rope_parameters: field 'factor' is missing; need it for rope_type linear"},
    {"llama3", "rope_theta=20000",
     "field 'rope_parameters' has rope_theta 10000, but rope_theta and rope_scaling have 20000"},
    {"llama3", "rope_parameters={\"rope_type\": \"default\", \"rope_theta\": 1e4, \"partial_rotary_factor\": 0.5}",
     "field 'partial_rotary_factor' is 0.5; need a file without it"},
    {"llama3", "logit_scale=2", "field 'logit_scale' would change results; need a model without it"},
    {"llama3", "quantization_config={\"quant_method\": \"awq\"}", "field 'quantization_config' would change results"},
    {"llama_yarn_old", "rope_scaling=3", "field 'rope_scaling' is not an object; need one"},
    {"llama_yarn_old", "tie_word_embeddings=false", ""},
    {"qwen2", "tie_word_embeddings=true", "'lm_head.weight' differs from the embedding"},
    {"qwen2", "use_sliding_window=true", ""},
    {"mistral", "sliding_window=16",
     "field 'sliding_window' is 16; need attention to all tokens: at least the context, 32"},
    {"smollm3", "no_rope_layers=[1, 0, 0, 1]", "field 'no_rope_layers' is not 4 numbers with a 0 at each n-th"},
    {"gpt2", "activation_function=\"relu\"", "field 'activation_function' is relu; need gelu_new or gelu_pytorch_tanh"},
    {"gpt2", "scale_attn_by_inverse_layer_idx=true", "field 'scale_attn_by_inverse_layer_idx' is true; need false"},
    {"mixtral", "num_local_experts=3",
     "tensor 'model.layers.0.block_sparse_moe.gate.weight' is f32[4, 16]; need [3, 16] of config.json"},
    {"mixtral", "num_local_experts=5", "no tensor 'layers.0.block_sparse_moe.experts.4.w1.weight'"},
    {"qwen3_moe", "mlp_only_layers=[0]", "field 'mlp_only_layers' is [0]; need []"},
    {"qwen3_moe", "num_experts_per_tok=9", "top_k"},
};

std::string changed(const std::string& text, const std::string& change) {
  const size_t at = change.find('=');
  const std::string field = str_cat("\"", change.substr(0, at), "\""), value = change.substr(at + 1);
  std::string out, line;
  std::istringstream in(text);
  while (std::getline(in, line))
    if (!line.starts_with(" " + field))
      out += line + "\n";
    else
      for (int depth = 0;; std::getline(in, line)) {  // leaves out the whole value
        for (const char c : line) depth += (c == '{' || c == '[') - (c == '}' || c == ']');
        if (depth == 0) break;
      }
  if (const size_t comma = out.find(",\n}"); comma != out.npos) out.erase(comma, 1);
  if (!value.empty()) out.insert(out.find('{') + 1, str_cat(field, ": ", value, ","));
  return out;
}

TEST(Hf, OneSentenceForWhatDoesNotFit) {
  for (const Bad& bad : kBad) {
    SCOPED_TRACE(str_cat(bad.model, " ", bad.change));
    const std::string folder = str_cat(::testing::TempDir(), "/bad");
    io::make_folders(folder);
    for (const std::string& file : io::list_folder(folder)) std::remove((folder + "/" + file).c_str());
    for (const std::string& file : io::list_folder(folder_of(bad.model)))
      if (file != "expected.safetensors" && file != "config.json")
        io::write_file_atomic(folder + "/" + file, io::read_file(folder_of(bad.model) + "/" + file, 1 << 20));
    const std::string config = io::read_file(folder_of(bad.model) + "/config.json", 1 << 20);
    io::write_file_atomic(folder + "/config.json", changed(config, bad.change));
    std::vector<std::string> warnings;
    std::string error = error_of([&] {
      const HfModel hf = weights::open_hf(folder);
      const std::string what = folder + "/config.json";
      const auto model = weights::with_names(hf.config, what, [&] { return model_of(hf); });
      weights::load_weights(hf, model->named_cells(), &warnings);
    });
    for (const std::string& w : warnings) error += w;
    if (!*bad.error) {
      EXPECT_EQ(error, "");
    } else {
      EXPECT_NE(error.find(bad.error), error.npos) << error;
      EXPECT_NE(error.find(folder), error.npos) << error;
      EXPECT_EQ(error.find('\n'), error.npos) << error;
    }
  }
}

// GPT-2's old buffers are not needed.
TEST(Hf, AnUnknownDtypeIsRefusedWhenItsTensorIsNeeded) {
  const std::string folder = str_cat(::testing::TempDir(), "/dtypes");
  io::make_folders(folder);
  io::write_file_atomic(folder + "/config.json", io::read_file(folder_of("gpt2") + "/config.json"));
  std::string text = io::read_file(folder_of("gpt2") + "/model.safetensors");
  const auto load_with_u32 = [&](const std::string& tensor) {
    const std::string entry = str_cat("\"", tensor, "\":{\"dtype\":\"");
    const size_t at = text.find(entry + "F32");
    WEFT_CHECK(at != text.npos, "no entry of ", tensor);
    text.replace(at + entry.size(), 3, "U32");
    io::write_file_atomic(folder + "/model.safetensors", text);
    return error_of([&] {
      const HfModel hf = weights::open_hf(folder);
      const auto model = model_of(hf);
      weights::load_weights(hf, model->named_cells());
    });
  };
  EXPECT_EQ(load_with_u32("transformer.h.0.attn.bias"), "");
  const std::string error = load_with_u32("transformer.h.0.attn.c_attn.weight");
  EXPECT_EQ(error.find(str_cat(folder,
                               "/model.safetensors: tensor 'transformer.h.0.attn.c_attn.weight' has dtype U32; "
                               "need one of F32")),
            0u)
      << error;
}

// Files that are damaged on purpose get one line, within a second of the processor.
TEST(Hf, HostileFilesAreRefusedAtOnce) {
  const std::string folder = str_cat(::testing::TempDir(), "/hostile"), path = folder + "/config.json";
  const std::string config = io::read_file(folder_of("llama3") + "/config.json", 1 << 20);
  const auto many = [](const std::string& text, int n) {
    std::string s;
    for (int i = 0; i < n; ++i) s += text;
    return s;
  };
  std::string keys = "{", names = "{\"weight_map\": {";
  for (int i = 0; i < 300000; ++i) {
    keys += str_cat("\"k", i, "\": 1, ");
    names += str_cat("\"layers.", i, ".x\": \"model-0.safetensors\", ");
  }
  const struct {
    const char* file;
    std::string text;
    const char* error;
  } cases[] = {
      {"config.json", many("[", 1 << 20), "config.json"},
      {"config.json", many("{\"a\":", 1 << 20), "config.json"},
      {"config.json", "[" + many("1,", 1 << 20) + "1]", "is not an object; need the fields of a model"},
      {"config.json", keys + "\"model_type\": \"llama\"}", "field 'vocab_size' is missing"},
      {"config.json", "{\"model_type\": \"" + many("x", 1 << 20) + "\"}", "need one of gpt2"},
      {"config.json", "{\"model_type\": \"\\ud800\"}", "config.json"},
      {"config.json", "{\"model_type\": [\"llama\"]}", "need one of gpt2"},
      {"config.json", many(" ", 17 << 20), "config.json"},
      {"config.json", changed(config, "num_hidden_layers=10000"), "no tensor 'layers.2.input_layernorm.weight'"},
      {"config.json", changed(config, "num_hidden_layers=1000000000"),
       "field 'num_hidden_layers' is '1000000000'; need"},
      {"config.json", changed(config, "num_hidden_layers=-1"), "field 'num_hidden_layers' is '-1'; need"},
      {"config.json", changed(config, "vocab_size=9223372036854775808"), "field 'vocab_size' is '9223372036854775808'"},
      {"config.json", changed(config, "vocab_size=67108864"), "tensor 'model.embed_tokens.weight' is "},
      {"config.json", changed(config, "hidden_size=4194304"), "tensor 'model.embed_tokens.weight' is "},
      {"config.json", changed(config, "hidden_size=1e400"), "config.json"},
      {"config.json", changed(config, "max_position_embeddings=1073741824"), ""},
      {"config.json", changed(config, "num_attention_heads=4194304"), "config.json"},
      {"config.json", changed(config, "rms_norm_eps=1e-400"), "field 'rms_norm_eps'"},
      {"config.json", changed(config, "head_dim=65536"), "need [262144, 16] for heads 4 x head_dim 65536"},
      {"model.safetensors.index.json", names + "\"a\": \"model-0.safetensors\"}}", "model-0.safetensors"},
      {"model.safetensors.index.json", "{\"weight_map\": {\"a\": \"../model.safetensors\"}}",
       "need a file in the same folder"},
      {"model.safetensors.index.json", "{\"weight_map\": {\"a\": \"model.safetensors\"}}",
       "says that 'model.safetensors' holds tensor 'a'"},
      {"model.safetensors.index.json", "{\"weight_map\": " + many("[", 1 << 20), "index.json"},
      {"model.safetensors", std::string("\xff\xff\xff\xff\xff\xff\xff\x7f{}", 10),
       "the header claims 9223372036854775807 bytes"},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(str_cat(c.file, " ", c.text.substr(0, 40)));
    io::remove_all(folder);
    io::make_folders(folder);
    for (const char* file : {"config.json", "model.safetensors"})
      io::write_file_atomic(str_cat(folder, "/", file),
                            io::read_file(str_cat(folder_of("llama3"), "/", file), 1 << 20));
    io::write_file_atomic(str_cat(folder, "/", c.file), c.text);
    const std::clock_t begin = std::clock();
    const std::string error = error_of([&] {
      const HfModel hf = weights::open_hf(folder);
      const auto model = weights::with_names(hf.config, path, [&] { return model_of(hf); });
      weights::load_weights(hf, model->named_cells());
    });
    EXPECT_LE(std::clock() - begin, CLOCKS_PER_SEC);
    EXPECT_NE(error.find(c.error), error.npos) << error.substr(0, 400);
    EXPECT_EQ(error.empty(), !*c.error) << error;
    EXPECT_LE(error.size(), 600u);
    EXPECT_EQ(error.find('\n'), error.npos);
  }
}

// Pieces of each layout cover a cell once, for random sizes.
TEST(Pieces, CoverEachElementOnce) {
  uint32_t seed = 7;
  const auto draw = [&](int64_t most) {
    return static_cast<int64_t>((seed = seed * 1664525 + 1013904223) >> 16) % most + 1;
  };
  for (int i = 0; i < 200; ++i) {
    const int64_t G = draw(3), R = draw(3), D = 2 * draw(3), in = draw(5), E = draw(3), F = draw(4);
    weights::Sizes s({{"heads", str_cat(G * R)}, {"kv_heads", str_cat(G)}, {"head_dim", str_cat(D)}, {"dim", "1"}});
    using weights::Layout;
    const auto check = [&](const Shape& cell, std::vector<std::pair<Layout, int64_t>> parts) {
      std::vector<int> seen(static_cast<size_t>(cell.numel()));
      for (const auto& [layout, expert] : parts) {
        const weights::Piece p = weights::piece_of(layout, cell, s, expert);
        std::vector<int> used(static_cast<size_t>(weights::source_shape(layout, cell, s).numel()));
        std::vector<int64_t> e(p.extents.size());
        for (bool more = true; more;) {
          int64_t from = p.from_offset, to = p.to_offset;
          for (size_t d = 0; d < e.size(); ++d) from += e[d] * p.from[d], to += e[d] * p.to[d];
          ASSERT_EQ(used.at(static_cast<size_t>(from))++, 0);
          ++seen.at(static_cast<size_t>(to));
          more = false;
          for (size_t d = e.size(); d-- > 0 && !more;) more = ++e[d] < p.extents[d] || (e[d] = 0);
        }
      }
      EXPECT_EQ(seen, std::vector<int>(seen.size(), 1));
    };
    const Shape qkv{G * (R + 2) * D, in}, bias{G * (R + 2) * D};
    check(qkv, {{Layout::kQ, 0}, {Layout::kK, 0}, {Layout::kV, 0}});
    check(bias, {{Layout::kQ, 0}, {Layout::kK, 0}, {Layout::kV, 0}});
    check(qkv, {{Layout::kQPermuted, 0}, {Layout::kKPermuted, 0}, {Layout::kV, 0}});
    check(bias, {{Layout::kQPermuted, 0}, {Layout::kKPermuted, 0}, {Layout::kV, 0}});
    check({in, F}, {{Layout::kTransposed, 0}});
    std::vector<std::pair<Layout, int64_t>> experts;
    for (int64_t e = 0; e < E; ++e) experts.emplace_back(Layout::kExpert, e);
    check({E, in, F}, experts);
    check({E, in, F}, {{Layout::kExpertsGate, 0}});
    check({E, in, F}, {{Layout::kExpertsUp, 0}});
    check({E, F, in}, {{Layout::kExperts, 0}});
    s.kv_heads = s.heads;
    check({s.heads * 3 * D, in}, {{Layout::kQkvTransposed, 0}});
    check({s.heads * 3 * D}, {{Layout::kQkv, 0}});
    check({s.heads * 3 * D, in}, {{Layout::kQkv, 0}});
  }
}

// Tensors of these shapes, without data.
class ShapesOnly final : public weights::WeightSource {
 public:
  explicit ShapesOnly(std::map<std::string, Shape> shapes) : shapes_(std::move(shapes)) {}
  const std::string& path() const override { return path_; }
  std::vector<std::string> names() const override {
    std::vector<std::string> names;
    for (const auto& [name, shape] : shapes_) names.push_back(name);
    return names;
  }
  std::optional<weights::WeightInfo> find(std::string_view name) const override {
    const auto it = shapes_.find(std::string(name));
    if (it == shapes_.end()) return {};
    return weights::WeightInfo{kFloat32, it->second};
  }
  const void* read(std::string_view, int64_t, int64_t, std::vector<std::byte>&) const override { return nullptr; }
  void release(std::string_view) const override {}

 private:
  const std::string path_ = "file";
  const std::map<std::string, Shape> shapes_;
};

// The weights of the second expert are missing, though the two tensors have the size of the cell.
TEST(Pieces, OneExpertInTwoFormsIsRefused) {
  const ShapesOnly file(
      {{"layers.0.mlp.experts.0.gate_proj.weight", {4, 3}}, {"layers.0.block_sparse_moe.experts.0.w1.weight", {4, 3}}});
  const nn::ConfigMap config{{"heads", "1"}, {"dim", "3"}, {"experts", "2"}, {"tied", "false"}};
  EXPECT_EQ(error_of([&] {
              plan_cells(file, weights::moe_family(), config, {{"blocks.0.moe.w1", {2, 3, 4}}});
            }),
            "file: tensors 'layers.0.mlp.experts.0.gate_proj.weight' and "
            "'layers.0.block_sparse_moe.experts.0.w1.weight' are the same weights; need one of them");
}

}  // namespace
}  // namespace weft::testing
