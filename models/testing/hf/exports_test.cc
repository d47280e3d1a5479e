// Models after 50 steps, as //tools:export wrote them (make_exports.py): Weft has the logits that transformers has of
// the folder and the greedy tokens that llama.cpp has of the GGUF file, and exports again the bytes that both read.
#include <gtest/gtest.h>

#include <cstdio>

#include "framework/io/checksum.h"
#include "framework/io/file.h"
#include "framework/io/json.h"
#include "models/hf/hf.h"
#include "models/text/formats/files.h"
#include "models/weights/load.h"
#include "models/weights/write.h"
#include "weft.h"

namespace weft::testing {
namespace {

using Ids = std::vector<int32_t>;

constexpr double kTolerance = 1e-4;  // allowed difference of logits

std::string temp(const std::string& name) {
  const std::string path = ::testing::TempDir() + "/" + name;
  io::remove_all(path);
  return path;
}

class Exports : public ::testing::TestWithParam<const char*> {
 protected:
  const std::string folder_ = std::string("models/testing/hf/fixtures/exports/") + GetParam();
  const train::LoadedModel model_ = load_hf(folder_);
  const io::Json greedy_ = io::parse_json(io::read_file(folder_ + "/greedy.json"), folder_ + "/greedy.json");

  // The model as //tools:export passes it to the writers.
  weights::Written written() const {
    const weights::HfConfig hf = weights::open_hf(folder_).config;
    weights::Written w{.family = hf.family, .config = hf.config};
    for (const auto& [name, cell] : model_.model->named_cells())
      w.cells.push_back({name, cell.value().view_for_kernel()});
    return w;
  }
};

TEST_P(Exports, HaveTheLogitsOfTransformers) {
  const nn::StateDict expected = load(folder_ + "/expected.safetensors");
  const Tensor logits = model_.model->logits(expected.at("tokens"));
  int versions = 0;
  for (const auto& [name, want] : expected) {
    if (!name.starts_with("logits.")) continue;
    const double difference = amax(abs(logits - want)).item<double>();
    std::printf("%s, transformers %s: within %.1e\n", GetParam(), name.substr(7).c_str(), difference);
    EXPECT_LE(difference, kTolerance) << name;
    EXPECT_GE(amax(abs(want)).item<double>(), 1);
    ++versions;
  }
  EXPECT_EQ(versions, 2);
}

TEST_P(Exports, HaveTheGreedyTokensOfLlamaCpp) {
  const auto prompts = greedy_["prompts"].get<std::vector<Ids>>(), ids = greedy_["ids"].get<std::vector<Ids>>();
  ASSERT_EQ(prompts.size(), 3u);
  ASSERT_EQ(ids.size(), 3u);
  for (size_t i = 0; i < ids.size(); ++i)
    EXPECT_EQ(train::generate(*model_.model, prompts[i],
                              {.max_new_tokens = static_cast<int64_t>(ids[i].size()), .temperature = 0}),
              ids[i]);
}

// If one of these fails because an export has changed on purpose: run make_exports.py again.
TEST_P(Exports, HaveTheBytesThatTransformersRead) {
  const std::string folder = temp("export");
  io::make_folders(folder);
  weights::write_hf(folder, written());
  for (const auto& [name, content] : text::files_for_transformers("", {}))
    io::write_file_atomic(folder + "/" + name, content);
  const std::vector<std::string> files = io::list_folder(folder);
  EXPECT_EQ(files.size(), 5u);
  for (const std::string& file : files)
    EXPECT_TRUE(io::read_file(folder + "/" + file) == io::read_file(folder_ + "/" + file)) << file;
}

TEST_P(Exports, HaveTheBytesThatLlamaCppRead) {
  const std::string file = temp("export.gguf");
  std::vector<std::string> notes;
  weights::write_gguf(file, written(), "f32", text::metadata_for_gguf("", model_.model->vocab(), {}, &notes));
  EXPECT_EQ(io::hex64(io::checksum(io::read_file(file))), greedy_["gguf_xxh3"].get<std::string>());
}

INSTANTIATE_TEST_SUITE_P(All, Exports, ::testing::Values("gpt", "llama", "moe"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace weft::testing
