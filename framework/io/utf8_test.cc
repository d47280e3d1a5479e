// Characters of valid UTF-8 and of other bytes.
#include "framework/io/utf8.h"

#include <gtest/gtest.h>

#include <random>

namespace weft::io {
namespace {

TEST(Utf8, CodePointsComeBack) {
  for (uint32_t code = 0; code <= 0x10FFFF; ++code) {
    if (code >= 0xD800 && code <= 0xDFFF) continue;
    std::string s;
    append_character(s, code);
    ASSERT_TRUE(is_utf8(s)) << code;
    for (const CodePoint c : {code_point(s), first_character(s + "\x80"), last_character("\xF0\x9F" + s)}) {
      ASSERT_EQ(c.code, code);
      ASSERT_EQ(c.size, s.size());
    }
  }
}

TEST(Utf8, OtherBytesAreCharactersOfTheirOwn) {
  for (const char* bytes : {"\x80", "\xC3", "\xC0\x80", "\xED\xA0\x80", "\xF5\x80\x80\x80", "\xE2\x82", "\xFF"}) {
    EXPECT_FALSE(is_utf8(bytes));
    EXPECT_EQ(first_character(bytes).code, 0xFFFDu);
    EXPECT_EQ(first_character(bytes).size, 1u);
    EXPECT_EQ(last_character(bytes).code, 0xFFFDu);
    EXPECT_EQ(last_character(bytes).size, 1u);
  }
}

TEST(Utf8, PrefixesAndSuffixes) {
  const auto digit = [](uint32_t c) { return c - '0' < 10 || c == 0xB2; };
  EXPECT_EQ(leading("1\u00b22a3", digit), 4u);
  EXPECT_EQ(trailing("1a2\u00b23", digit), 4u);
  EXPECT_EQ(leading("12", digit), 2u);
  EXPECT_EQ(trailing("12", digit), 2u);
  EXPECT_EQ(leading("", digit) + trailing("", digit), 0u);
  EXPECT_EQ(ascii_length("12345678a\u00e9"), 9u);
  EXPECT_EQ(valid_utf8_length("1234567\u00e9\u20ac\xE2\x82"), 12u);
  // Any bytes are characters in both directions.
  std::mt19937 random(1);
  for (int i = 0; i < 10'000; ++i) {
    std::string s;
    for (int k = 0; k < 8; ++k) s += "a\x80\x82\xC3\xE2\xF0\x9F\xFF"[random() % 8];
    const auto any = [](uint32_t) { return true; };
    ASSERT_EQ(leading(s, any), s.size());
    ASSERT_EQ(trailing(s, any), s.size());
    ASSERT_EQ(valid_utf8_length(s) == s.size(), leading(s, [](uint32_t c) { return c != 0xFFFD; }) == s.size());
  }
}

}  // namespace
}  // namespace weft::io
