// Bytes to ids and back, and the embedded text.
#include "models/data/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "framework/base/error.h"
#include "models/data/corpus.h"

namespace weft::data {
namespace {

TEST(ByteTokenizer, RoundTripsAnyBytes) {
  auto t = make_tokenizer("bytes");
  std::string all;
  for (int i = 0; i < 256; ++i) all += static_cast<char>(i);
  std::vector<int32_t> ids = t->encode(all);
  ASSERT_EQ(ids.size(), 256u);
  for (int i = 0; i < 256; ++i) EXPECT_EQ(ids[i], i);
  EXPECT_EQ(t->decode(ids), all);
  EXPECT_EQ(t->vocab_size(), 256);
  EXPECT_EQ(t->name(), "bytes");
  EXPECT_TRUE(t->encode("").empty());
}

TEST(ByteTokenizer, RefusesOtherIds) {
  for (int32_t bad : {-1, 256}) {
    try {
      ByteTokenizer().decode(std::vector<int32_t>{65, bad});
      FAIL();
    } catch (const Error& e) {
      EXPECT_EQ(std::string(e.what()), str_cat("decode: got token ", bad, "; need 0 to 255"));
    }
  }
  EXPECT_THROW(make_tokenizer("words"), Error);
}

TEST(Corpus, IsTheText) {
  std::string text = embedded_corpus();
  EXPECT_EQ(text.size(), 5053117u);
  EXPECT_TRUE(text.starts_with("ALL'S WELL THAT ENDS WELL\n"));
  EXPECT_TRUE(text.ends_with("\n"));
  EXPECT_NE(text.find("To be, or not to be,--that is the question:--"), text.npos);
  for (char c : text) ASSERT_TRUE(c == '\n' || (c >= ' ' && c <= '~')) << static_cast<int>(c);
  for (const char* notice : {"Gutenberg", "opyright", "http", "www."})
    EXPECT_EQ(text.find(notice), text.npos) << notice;
}

}  // namespace
}  // namespace weft::data
