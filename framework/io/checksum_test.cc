// Tests the checksum against published XXH3-64 values, and pieces against the whole.
#include "framework/io/checksum.h"

#include <gtest/gtest.h>

namespace weft::io {
namespace {

TEST(Checksum, KnownValues) {
  // xxHash's own test vector for empty input and seed 0.
  EXPECT_EQ(hex64(checksum("")), "2d06800538d394c2");
  EXPECT_EQ(hex64(0xabc), "0000000000000abc");
}

TEST(Checksum, PiecesGiveTheSame) {
  std::string text;
  for (int i = 0; i < 10'000; ++i) text += static_cast<char>(i * 31 + (i >> 8));
  for (size_t piece : {1, 7, 256, 4096, 10'000}) {
    Checksum c;
    for (size_t at = 0; at < text.size(); at += piece) c.update(std::string_view(text).substr(at, piece));
    EXPECT_EQ(c.value(), checksum(text)) << piece;
  }
  for (size_t i : {0, 5000, 9999}) {
    std::string bad = text;
    bad[i] ^= 1;
    EXPECT_NE(checksum(bad), checksum(text));
  }
}

}  // namespace
}  // namespace weft::io
