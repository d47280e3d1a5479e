// CRC-32C: published values; parts joined in any order against the whole.
#include "framework/io/crc32c.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <string>
#include <vector>

namespace weft::io {
namespace {

TEST(Crc32c, PublishedValues) {
  std::string ascending(32, '\0'), descending(32, '\0');
  std::iota(ascending.begin(), ascending.end(), '\0');
  std::iota(descending.rbegin(), descending.rend(), '\0');
  const struct {
    std::string text;
    uint32_t want;
  } rows[] = {
      {"", 0},
      {"a", 0xC1D04330},
      {"123456789", 0xE3069283},
      {std::string(32, '\0'), 0x8A9136AA},  // RFC 3720, B.4
      {std::string(32, '\xff'), 0x62A8AB43},
      {ascending, 0x46DD794E},
      {descending, 0x113FDB5C},
  };
  for (const auto& [text, want] : rows) EXPECT_EQ(crc32c(text), want) << testing::PrintToString(text);
}

std::string random_bytes(size_t n, std::mt19937_64& random) {
  std::string s(n, '\0');
  for (char& c : s) c = static_cast<char>(random());
  return s;
}

// One byte at a time, by the definition of a CRC.
uint32_t by_bits(std::string_view text) {
  uint32_t word = ~uint32_t{0};
  for (const char c : text) {
    word ^= static_cast<uint8_t>(c);
    for (int i = 0; i < 8; ++i) word = word & 1 ? (word >> 1) ^ 0x82F63B78 : word >> 1;
  }
  return ~word;
}

TEST(Crc32c, LongTextsAndTheirCuts) {
  std::mt19937_64 random(1);
  for (const size_t n : {1, 7, 8, 9, 255, 24575, 24576, 24577, 24583, 100'003}) {
    const std::string s = random_bytes(n, random);
    const uint32_t whole = by_bits(s);
    EXPECT_EQ(crc32c(s), whole) << n;
    for (int i = 0; i < 20; ++i) {
      const size_t cut = random() % (n + 1);
      const std::string_view a = std::string_view(s).substr(0, cut), b = std::string_view(s).substr(cut);
      EXPECT_EQ(crc32c_combine(crc32c(a), crc32c(b), static_cast<int64_t>(b.size())), whole) << n << " at " << cut;
    }
  }
}

TEST(Crc32c, Zeros) {
  for (const int64_t n : {0, 1, 3, 8, 32, 4095, 100'000})
    EXPECT_EQ(crc32c_of_zeros(n), crc32c(std::string(static_cast<size_t>(n), '\0'))) << n;
  // More zeros than there is memory for, in two parts.
  const int64_t many = int64_t{1} << 50;
  EXPECT_EQ(crc32c_combine(crc32c_of_zeros(many), crc32c_of_zeros(many + 5), many + 5), crc32c_of_zeros(2 * many + 5));
}

TEST(Crc32c, SharesOfDisjointRangesInAnyOrder) {
  std::mt19937_64 random(2);
  for (const size_t n : {1, 5, 4096, 70'001}) {
    const std::string s = random_bytes(n, random);
    for (int run = 0; run < 20; ++run) {
      std::vector<size_t> cuts{0, n};
      for (int i = 0; i < 9; ++i) cuts.push_back(random() % (n + 1));
      std::sort(cuts.begin(), cuts.end());
      std::vector<size_t> order(cuts.size() - 1);
      std::iota(order.begin(), order.end(), size_t{0});
      std::shuffle(order.begin(), order.end(), random);
      uint32_t word = crc32c_of_zeros(static_cast<int64_t>(n));
      for (const size_t i : order) {
        const auto range = std::as_bytes(std::span(s)).subspan(cuts[i], cuts[i + 1] - cuts[i]);
        word ^= crc32c_share(range, static_cast<int64_t>(n - cuts[i + 1]));
      }
      EXPECT_EQ(word, crc32c(s)) << n;
    }
  }
}

}  // namespace
}  // namespace weft::io
