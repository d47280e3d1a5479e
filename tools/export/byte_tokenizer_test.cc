// The byte tokenizer's files: 256 tokens, whose ids are the bytes.
#include "tools/export/byte_tokenizer.h"

#include <gtest/gtest.h>

#include "framework/io/json.h"

namespace weft::tools {
namespace {

TEST(ByteTokenizer, HasEachByteOnce) {
  const io::Json json = io::parse_json(byte_tokenizer_json(), "tokenizer.json");
  const io::Json& vocab = json["model"]["vocab"];
  ASSERT_EQ(vocab.size(), 256u);  // 256 different characters
  std::vector<int> seen(256);
  for (const auto& [token, id] : vocab.items()) ++seen.at(id.get<size_t>());
  EXPECT_EQ(seen, std::vector<int>(256, 1));
  // Characters of bytes_to_unicode() of GPT-2.
  const std::pair<const char*, int> known[] = {{"!", 33},  {"~", 126}, {"Ā", 0},   {"Ċ", 10},  {"Ġ", 32},
                                               {"ġ", 127}, {"ł", 160}, {"¡", 161}, {"Ń", 173}, {"ÿ", 255}};
  for (const auto& [token, id] : known) EXPECT_EQ(vocab.at(token), id) << token;
  EXPECT_EQ(json["pre_tokenizer"]["use_regex"], false);

  const io::GgufMetadata gguf = byte_tokenizer_gguf(260);
  const auto& tokens = std::get<std::vector<std::string>>(gguf[2].second);
  const auto& types = std::get<std::vector<int32_t>>(gguf[3].second);
  ASSERT_EQ(tokens.size(), 260u);
  ASSERT_EQ(types.size(), 260u);
  for (int b = 0; b < 256; ++b) EXPECT_EQ(vocab.at(tokens[static_cast<size_t>(b)]), b);
}

}  // namespace
}  // namespace weft::tools
