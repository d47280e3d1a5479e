// GGUF files by the rules of llama.cpp (make_gguf.py) give the cells of transformers' files. Models that Weft writes
// are read again with equal bits.
#include "models/weights/gguf.h"

#include <gtest/gtest.h>

#include <cstring>

#include "framework/base/testing/error_of.h"
#include "framework/io/file.h"
#include "framework/io/json.h"
#include "models/gpt/config.h"
#include "models/hf/families.h"
#include "models/llama/config.h"
#include "models/moe/config.h"
#include "models/weights/load.h"
#include "models/weights/write.h"
#include "weft.h"

namespace weft::testing {
namespace {

using weights::HfModel;
using Cells = std::map<std::string, Tensor>;

const weights::Family& tables_of(const std::string& program) {
  for (const weights::Family* f : weights::families())
    if (f->program == program) return *f;
  throw std::runtime_error(program);
}

std::string fixture(const std::string& name) { return "models/testing/hf/fixtures/" + name; }

std::unique_ptr<nn::LanguageModel> model_of(const std::string& program, const nn::ConfigMap& config) {
  const nn::ModelFamily& f = family_named(program);
  return f.make(f.with_fields(f.preset(f.default_preset), config));
}

Cells cells_of(const nn::LanguageModel& model) {
  Cells cells;
  for (const auto& [name, cell] : model.named_cells()) cells[name] = cell.value();
  return cells;
}

// The cells of a path, and its configuration with the size of a head and without the fields that GGUF cannot store.
struct Loaded {
  nn::ConfigMap config;
  Cells cells;
};
Loaded load_path(const std::string& path) {
  const HfModel hf = weights::open_hf(path);
  const auto model = model_of(hf.config.family->program, hf.config.config);
  std::vector<std::string> warnings = hf.config.notes(path);
  weights::load_weights(hf, model->named_cells(), &warnings);
  EXPECT_EQ(warnings, std::vector<std::string>()) << path;
  Loaded l{hf.config.config, cells_of(*model)};
  if (l.config.contains("head_dim") && l.config["head_dim"] == "0")
    l.config["head_dim"] = str_cat(std::stoll(l.config["dim"]) / std::stoll(l.config["heads"]));
  for (const char* field : {"aux_loss", "normalize", "no_rope_every"}) l.config.erase(field);
  return l;
}

void expect_equal(const Cells& a, const Cells& b) {
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [name, x] : a) {
    const Tensor& y = b.at(name);
    ASSERT_EQ(x.shape(), y.shape()) << name;
    EXPECT_EQ(std::memcmp(x.view_for_kernel().data, y.view_for_kernel().data,
                          static_cast<size_t>(x.numel() * itemsize(x.dtype()))),
              0)
        << name;
  }
}

weights::Written written(const std::string& program, const nn::ConfigMap& config, const Cells& cells) {
  weights::Written w{&tables_of(program), config, {}};
  for (const auto& [name, value] : cells) w.cells.push_back({name, value.view_for_kernel()});
  return w;
}

std::string temp(const std::string& name) {
  const std::string path = ::testing::TempDir() + "/" + name;
  io::remove_all(path);
  return path;
}

TEST(GgufModel, HasTheCellsOfTransformers) {
  for (const char* name : {"gpt2", "llama3", "llama_bf16", "mixtral", "qwen3_moe"}) {
    SCOPED_TRACE(name);
    const Loaded hf = load_path(fixture(name)), gguf = load_path(fixture(name) + "/model.gguf");
    EXPECT_EQ(hf.config, gguf.config);
    expect_equal(hf.cells, gguf.cells);
  }
}

// Each model of the fixtures, written in both formats and read again.
TEST(GgufModel, WrittenModelsHaveTheSameBits) {
  for (const char* name : {"gpt2", "gpt2_no_prefix", "llama3", "llama_yarn_old", "llama_bf16", "mistral", "smollm3",
                           "qwen2", "qwen3", "mixtral", "mixtral_fused", "qwen3_moe"}) {
    SCOPED_TRACE(name);
    const HfModel hf = weights::open_hf(fixture(name));
    const std::string program = hf.config.family->program;
    const auto model = model_of(program, hf.config.config);
    weights::load_weights(hf, model->named_cells());
    weights::Written w = written(program, hf.config.config, cells_of(*model));
    const std::string folder = temp("written"), file = temp("written.gguf");
    io::make_folders(folder);
    weights::write_hf(folder, w);
    const Loaded from_hf = load_path(fixture(name)), from_folder = load_path(folder);
    EXPECT_EQ(from_hf.config, from_folder.config);
    expect_equal(from_hf.cells, from_folder.cells);
    if (w.config.contains("no_rope_every") && w.config["no_rope_every"] != "0") w.config["no_rope_every"] = "4";
    if (w.config.contains("normalize")) w.config["normalize"] = "true";
    weights::write_gguf(file, w, "f32");
    const Loaded from_gguf = load_path(file);
    EXPECT_EQ(from_hf.config, from_gguf.config);
    expect_equal(from_hf.cells, from_gguf.cells);
  }
}

// Presets with random cells; in bf16 and q8_0 the values are the rounded ones.
TEST(GgufModel, PresetsSurviveExport) {
  nn::ConfigMap gpt2 = nn::to_map(gpt::preset("gpt_shakespeare"));
  gpt2["rms_norm"] = "false", gpt2["bias"] = "true", gpt2["dropout"] = "0.1";
  const std::pair<const char*, nn::ConfigMap> models[] = {{"gpt", gpt2},
                                                          {"llama", nn::to_map(llama::preset("llama_shakespeare"))},
                                                          {"moe", nn::to_map(moe::preset("moe_shakespeare"))}};
  for (const auto& [program, config] : models) {
    SCOPED_TRACE(program);
    const auto model = model_of(program, config);
    Cells cells;
    for (const auto& [name, cell] : model->named_cells()) cells[name] = randn(cell.shape());
    const weights::Written w = written(program, config, cells);
    const auto check = [&](const std::string& path, double tolerance) {
      const Cells back = load_path(path).cells;
      if (tolerance == 0) return expect_equal(cells, back);
      ASSERT_EQ(cells.size(), back.size());
      for (const auto& [name, x] : cells) {
        const double bound = tolerance * amax(abs(x)).item<double>();
        EXPECT_LE(amax(abs(x - back.at(name))).item<double>(), bound) << name;
      }
    };
    const std::string folder = temp("preset"), half = temp("preset_bf16");
    io::make_folders(folder), io::make_folders(half);
    weights::write_hf(folder, w);
    weights::write_hf(half, w, kBFloat16);
    weights::write_gguf(folder + ".gguf", w, "f32");
    weights::write_gguf(half + ".gguf", w, "bf16");
    weights::write_gguf(half + "q.gguf", w, "q8_0");
    check(folder, 0);
    check(folder + ".gguf", 0);
    check(half, 1.0 / 256);  // 8 bits
    check(half + ".gguf", 1.0 / 256);
    // Half a step of 127 steps, and the rounding of the scale to 11 bits.
    check(half + "q.gguf", 0.5 / 127 + 1.0 / 2048);
  }
}

TEST(GgufModel, AConfigurationThatNothingDescribesGetsOneSentence) {
  struct Case {
    const char *program, *preset, *field, *value, *error;
  };
  const Case cases[] = {
      {"gpt", "gpt_shakespeare", "bias", "true",
       "config: field 'rms_norm' is 'true'; need 'false' for GPT2LMHeadModel, the nearest model of transformers"},
      {"moe", "moe_shakespeare", "shared_ffn", "64", "config: field 'shared_ffn' is '64'; need '0'"},
      {"moe", "moe_shakespeare", "rope", "false",
       "config: field 'rope' is 'false'; need 'true' for MixtralForCausalLM"},
      {"moe", "moe_shakespeare", "bias_rate", "0.1", "config: field 'bias_rate' is '0.1'; need '0'"},
      {"moe", "moe_shakespeare", "score", "sigmoid", "config: field 'score' is 'sigmoid'; need 'softmax'"},
      {"moe", "moe_shakespeare", "normalize", "false", "config: field"},
      {"llama", "llama_shakespeare", "no_rope_every", "2", ""},
      {"llama", "llama_shakespeare", "qkv_bias", "true", ""},
      {"llama", "llama_shakespeare", "attn_bias", "true", ""},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(str_cat(c.program, " ", c.field));
    const nn::ModelFamily& f = family_named(c.program);
    nn::ConfigMap config = f.preset(c.preset);
    config[c.field] = c.value;
    const std::string error = error_of([&] { weights::config_json(tables_of(c.program), config); });
    EXPECT_EQ(error.substr(0, std::strlen(c.error)), c.error);
    EXPECT_EQ(error.empty(), !*c.error) << error;
    EXPECT_EQ(error.find('\n'), error.npos);
  }
}

// Either form of rotary settings is enough, and both are written.
TEST(GgufModel, BothFormsOfRotarySettings) {
  nn::ConfigMap config = nn::to_map(llama::preset("llama-1b"));
  const std::string text = weights::config_json(weights::llama_family(), config).first;
  const auto read = [&](const io::Json& json) {
    return weights::read_config(io::write_json(json), "config.json", weights::For::kWeights).config;
  };
  const nn::ConfigMap whole = read(io::parse_json(text, "text"));
  EXPECT_EQ(whole.at("rope_type"), "llama3");
  EXPECT_EQ(std::stod(whole.at("rope_theta")), 500000);
  io::Json before = io::parse_json(text, "text"), now = before;
  before.erase("rope_parameters");
  now.erase("rope_theta"), now.erase("rope_scaling");
  EXPECT_EQ(read(before), whole);
  EXPECT_EQ(read(now), whole);
}

TEST(GgufModel, OneSentenceForWhatDoesNotFit) {
  nn::ConfigMap config = nn::to_map(llama::preset("llama-1b"));
  config["rope_low_freq_factor"] = "2";
  EXPECT_EQ(error_of([&] { weights::write_gguf(temp("other.gguf"), written("llama", config, {}), "f32"); }),
            "config: fields 'rope_low_freq_factor' and 'rope_high_freq_factor' are 2 and 4; need 1 and 4: GGUF files "
            "have no other");
  const HfModel hf = weights::open_hf(fixture("llama3"));
  const auto model = model_of("llama", hf.config.config);
  const float one = 1;
  const std::vector<float> factors{1, 3};
  struct Case {
    io::GgufMetadata more;
    const char* error;
  };
  const Case cases[] = {
      {{{"general.architecture", std::string("gemma3")}},
       "'general.architecture' is 'gemma3'; need one of gpt2, llama"},
      {{{"general.architecture", std::string("llama")}},
       "no key 'llama.context_length'; need it for architecture llama"},
      {{{"general.architecture", std::string("llama")}, {"llama.expert_count", uint32_t{4}}},
       "no key 'llama.context_length'"},
  };
  const std::string path = temp("bad.gguf");
  for (const Case& c : cases) {
    const io::GgufData data{"token_embd.weight", io::kGgufF32, {1, 1}, std::as_bytes(std::span(&one, 1))};
    io::write_gguf(path, c.more, {&data, 1});
    const std::string error = error_of([&] { weights::open_hf(path); });
    EXPECT_EQ(error.find(path + ": " + c.error), 0u) << error;
  }
  EXPECT_EQ(error_of([&] { weights::llama3_of(factors, 10000, "f"); }),
            "f has factors that no llama3 scaling with low_freq_factor 1 and high_freq_factor 4 gives");
}

}  // namespace
}  // namespace weft::testing
