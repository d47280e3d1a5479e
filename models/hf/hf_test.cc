// load_hf() of each family: greedy tokens are the likeliest tokens of transformers, texts and conversations become ids,
// ids become text, and mistakes get one sentence.
#include "models/hf/hf.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "framework/base/testing/error_of.h"
#include "framework/io/file.h"
#include "models/hf/families.h"
#include "models/weights/families/family.h"
#include "models/weights/load.h"
#include "weft.h"

namespace weft::testing {
namespace {

using Ids = std::vector<int32_t>;

constexpr train::SampleOptions kGreedy{.max_new_tokens = 1, .temperature = 0};

std::string fixture(const std::string& name) { return "models/testing/hf/fixtures/" + name; }

// A folder with the files of a fixture, and with a tokenizer of 40 characters: token i is the i-th of kLetters.
const std::string kLetters = "abcdefghijklmnopqrstuvwxyz0123456789 .,?";
std::string with_letters(const std::string& name, const std::string& to) {
  const std::string folder = ::testing::TempDir() + "/" + to;
  io::remove_all(folder);
  io::make_folders(folder);
  const auto copy = [&](const std::string& from, const std::string& file) {
    io::write_file_atomic(folder + "/" + file, io::read_file(from, 1 << 20));
  };
  for (const char* file : {"config.json", "model.safetensors"}) copy(fixture(name) + "/" + file, file);
  copy("models/hf/testdata/letters.json", "tokenizer.json");
  return folder;
}

struct Published {
  const char* path;
  const char* family;
};
const Published kPublished[] = {
    {"gpt2", "gpt"},
    {"gpt2_no_prefix", "gpt"},
    {"llama3", "llama"},
    {"llama_yarn_old", "llama"},
    {"llama_bf16", "llama"},
    {"mistral", "llama"},
    {"smollm3", "llama"},
    {"qwen2", "llama"},
    {"qwen3", "llama"},
    {"mixtral", "moe"},
    {"mixtral_fused", "moe"},
    {"qwen3_moe", "moe"},
    {"gpt2/model.gguf", "gpt"},
    {"llama3/model.gguf", "llama"},
    {"mixtral/model.gguf", "moe"},
};

TEST(LoadHf, GreedyTokensAreTheLikeliestOfTransformers) {
  for (const Published& p : kPublished) {
    SCOPED_TRACE(p.path);
    const train::LoadedModel m = load_hf(fixture(p.path), {.text = false});
    EXPECT_EQ(m.model->family(), p.family);
    EXPECT_EQ(m.tokenizer, nullptr);
    const std::string name = p.path;
    const nn::StateDict expected = load(fixture(name.substr(0, name.find('/'))) + "/expected.safetensors");
    const Ids text = expected.at("tokens").select(0, 0).to(kInt32).to_vector<int32_t>();
    const Ids likeliest = argmax(expected.at("logits").select(0, 0), -1).to(kInt32).to_vector<int32_t>();
    for (const size_t n : {size_t{1}, size_t{5}, text.size()}) {
      const Ids prompt(text.begin(), text.begin() + static_cast<ptrdiff_t>(n));
      EXPECT_EQ(train::generate(*m.model, prompt, kGreedy), Ids{likeliest[n - 1]}) << n;
    }
  }
}

TEST(LoadHf, ReadsTheModelsOfAllTables) {
  for (const weights::Family* tables : weights::families())
    EXPECT_EQ(std::ranges::count(model_families(), tables->program, &nn::ModelFamily::name), 1) << tables->program;
}

TEST(LoadHf, TextsAndConversationsBecomeIds) {
  const std::string folder = with_letters("llama3", "letters");
  io::write_file_atomic(folder + "/chat_template.jinja",
                        "{% for m in messages %}{{ m.role[0] }}.{{ m.content }} {% endfor %}a.");
  const train::LoadedModel m = load_hf(folder);
  const auto text_of = [&](const Ids& ids) { return m.tokenizer->decode(ids); };
  EXPECT_EQ(m.end_ids, Ids{2});  // config.json has them
  EXPECT_EQ(m.tokenizer->encode("b7 ?"), (Ids{1, 33, 36, 39}));
  EXPECT_EQ(text_of(train::prompt_ids(m, {}, "who?")), "who?");
  EXPECT_EQ(text_of(train::prompt_ids(m, {.chat = true, .system = "be kind"}, "who?")), "s.be kind u.who? a.");
  const Ids ids = train::chat_ids(m, {{"user", "who?"}, {"assistant", "me"}, {"user", "why?"}});
  EXPECT_EQ(text_of(ids), "u.who? a.me u.why? a.");

  // The text of the stream is the text of the new tokens.
  train::TextStream text(m, {}, ids);
  std::string shown;
  Ids made = train::generate(*m.model, ids, {.max_new_tokens = 6, .temperature = 0}, [&](int32_t id) {
    shown += text.add(id);
    return !text.ended();
  });
  if (m.ends(made.back())) made.pop_back();
  EXPECT_EQ(shown + text.rest(), text_of(made));
  EXPECT_FALSE(made.empty());

  const std::shared_ptr<const text::Tokenizer> alone = text::Tokenizer::open(folder);
  EXPECT_EQ(alone->encode("b7 ?"), m.tokenizer->encode("b7 ?"));
}

TEST(LoadHf, OptionsAndTheLocalCache) {
  const std::string folder = with_letters("llama3", "cache/models--org--tiny/snapshots/0123abcd");
  const std::string refs = ::testing::TempDir() + "/cache/models--org--tiny/refs";
  io::make_folders(refs);
  io::write_file_atomic(refs + "/main", "0123abcd\n");
  setenv("HF_HUB_CACHE", (::testing::TempDir() + "/cache").c_str(), 1);
  const train::LoadedModel m = load_hf("org/tiny", {.dtype = kBFloat16, .context = 16});
  unsetenv("HF_HUB_CACHE");
  EXPECT_EQ(m.folder, folder);
  EXPECT_EQ(m.model->context(), 16);
  const Tensor tokens = zeros({1, 4}, {.dtype = kInt64});
  EXPECT_EQ(m.model->logits(tokens).dtype(), kBFloat16);
}

// Without the copy, a read of weights behind the new end of the file would end this process.
TEST(LoadHf, CopiedWeightsSurviveAFileThatIsCutShort) {
  const std::string folder = with_letters("llama3", "cut");
  const Ids want = train::generate(*load_hf(folder).model, {1, 2}, kGreedy);
  const train::LoadedModel m = load_hf(folder, {.copy_weights = true});
  ASSERT_EQ(truncate((folder + "/model.safetensors").c_str(), 0), 0);
  EXPECT_EQ(train::generate(*m.model, {1, 2}, kGreedy), want);
}

TEST(LoadHf, AFileThatIsCutDuringACopyIsAnError) {
  const std::string folder = with_letters("llama3", "cut_early"), gguf = folder + "/model.gguf";
  io::write_file_atomic(gguf, io::read_file(fixture("llama3") + "/model.gguf"));
  const nn::ModelFamily& family = family_named("llama");
  for (const std::string& path : {folder, gguf}) {
    const weights::HfModel hf = weights::open_hf(path);
    const auto model = family.make(family.with_fields(family.preset(family.default_preset), hf.config.config));
    const std::string file = path == gguf ? gguf : folder + "/model.safetensors";
    const int64_t size = io::file_size(file);
    ASSERT_EQ(truncate(file.c_str(), size / 2), 0);
    EXPECT_EQ(error_of([&] { weights::load_weights(hf, model->named_cells(), nullptr, weights::Values::kCopied); }),
              str_cat(file, ": the file had ", size, " bytes when it was opened and has ", size / 2,
                      " now; need a file that no program changes while it is read"));
    for (const auto& [name, cell] : model->named_cells()) EXPECT_FALSE(cell.materialised()) << name;
  }
}

TEST(LoadHf, OneSentenceForMistakes) {
  const std::string none = ::testing::TempDir() + "/none", empty = ::testing::TempDir() + "/empty";
  io::make_folders(empty);
  const std::string other = with_letters("llama3", "other");
  io::write_file_atomic(other + "/config.json", R"({"model_type": "gpt_neox"})");
  const struct {
    std::string path;
    HfOptions options;
    std::string error;
  } cases[] = {
      {none,
       {},
       none + ": no such file or folder; need a folder with config.json, a .gguf file, or org/name of the cache"},
      {empty, {}, empty + ": no config.json; need a folder that transformers wrote"},
      {other,
       {},
       other + "/config.json: field 'model_type' is 'gpt_neox'; need one of gpt2, llama, mistral, smollm3, "
               "qwen2, qwen3, mixtral, qwen3_moe"},
      {fixture("llama3"), {}, fixture("llama3") + ": there is no tokenizer.json; need one, or a .gguf file"},
      {fixture("llama3"), {.dtype = kInt64}, "load_hf: dtype is i64; need f32, bf16 or f16"},
      {fixture("llama3"),
       {.context = 64},
       fixture("llama3") + "/config.json: context: got 64; need a number from 0 to 32, the context of the file"},
  };
  for (const auto& c : cases) EXPECT_EQ(error_of([&] { load_hf(c.path, c.options); }), c.error);
  const train::LoadedModel m = load_hf(fixture("llama3"), {.text = false});
  EXPECT_EQ(error_of([&] { train::prompt_ids(m, {}, "a"); }),
            "prompt: the model has no tokenizer; need a model that was loaded with its text");
}

}  // namespace
}  // namespace weft::testing
