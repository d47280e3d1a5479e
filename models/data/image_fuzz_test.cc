// Damaged PNG and JPEG files: each is read or refused.
#include <gtest/gtest.h>

#include <cstring>

#include "framework/io/inflate.h"
#include "framework/testing/fuzz.h"
#include "models/data/image.h"
#include "models/data/testing/pictures.h"

namespace weft::data {
namespace {

// Corrects the checksums of a PNG's chunks, so that damaged chunks are read.
void correct(std::string& s) {
  for (size_t at = 8; at + 12 <= s.size();) {
    uint64_t length = 0;
    for (size_t i = 0; i < 4; ++i) length = length << 8 | static_cast<uint8_t>(s[at + i]);
    if (length > s.size() - at - 12) return;
    const uint32_t crc = io::crc32_of(std::string_view(s).substr(at + 4, length + 4));
    for (size_t i = 0; i < 4; ++i) s[at + 8 + length + i] = static_cast<char>(crc >> (24 - 8 * i));
    at += length + 12;
  }
}

TEST(ImageFuzz, DamagedPictures) {
  std::vector<uint8_t> pixels;
  for (int i = 0; i < 24 * 24 * 4; ++i) pixels.push_back(static_cast<uint8_t>(i * i));
  weft::testing::fuzz({.seeds = {png_bytes(pixels, 5, 4, PNG_FORMAT_RGB), png_bytes(pixels, 24, 24, PNG_FORMAT_RGBA),
                                 png_bytes(pixels, 9, 3, PNG_FORMAT_GRAY), jpeg_bytes(pixels, 24, 20, 3),
                                 jpeg_bytes(pixels, 24, 20, 3, true), jpeg_bytes(pixels, 17, 9, 1)},
                       .damage =
                           [](std::string& s, weft::testing::FuzzRandom& random) {
                             weft::testing::damage_bytes(s, random);
                             if (s.starts_with("\x89PNG") && random() % 8) correct(s);
                           },
                       .read =
                           [](const std::string& s) {
                             const auto bytes = std::as_bytes(std::span(s));
                             for (ImageMode mode : {ImageMode::kUnchanged, ImageMode::kGray})
                               EXPECT_EQ(decode_image(bytes, mode, "picture").dim(), 3);
                           },
                       .names = "picture"});
}

}  // namespace
}  // namespace weft::data
