#include "models/data/readers/image.h"

#include "framework/base/testing/error_of.h"
#include "framework/io/file.h"
#include "framework/testing/compare.h"
#include "models/data/testing/pictures.h"
#include "ops/core/core.h"

namespace weft::data {
namespace {

using testing::expect_error;
using testing::same_bits;

Tensor decode(const std::string& s, ImageMode mode = ImageMode::kUnchanged) {
  return decode_image(std::as_bytes(std::span(s)), mode, "x.img");
}
std::vector<uint8_t> pixels(int64_t n, int step = 37) {
  std::vector<uint8_t> v;
  for (int64_t i = 0; i < n; ++i) v.push_back(static_cast<uint8_t>(i * step));
  return v;
}
Tensor chw(const std::vector<uint8_t>& v, int64_t h, int64_t w, int64_t c) {
  return permute(Tensor::from_vector<uint8_t>(v, {h, w, c}), {2, 0, 1}).contiguous();
}

TEST(Image, PngsAreTheirPixels) {
  const Tensor gray = chw(pixels(6), 2, 3, 1), rgb = chw(pixels(18), 2, 3, 3), rgba = chw(pixels(24), 2, 3, 4);
  const std::string g = png_bytes(pixels(6), 3, 2, PNG_FORMAT_GRAY), c = png_bytes(pixels(18), 3, 2, PNG_FORMAT_RGB),
                    a = png_bytes(pixels(24), 3, 2, PNG_FORMAT_RGBA);
  EXPECT_TRUE(same_bits(decode(g), gray));
  EXPECT_TRUE(same_bits(decode(c), rgb));
  EXPECT_TRUE(same_bits(decode(a), rgba));
  EXPECT_TRUE(same_bits(decode(g, ImageMode::kRgb), expand(gray, {3, 2, 3}).contiguous()));
  EXPECT_TRUE(same_bits(decode(a, ImageMode::kRgb), slice(rgba, 0, 0, 3).contiguous()));
  EXPECT_TRUE(same_bits(decode(c, ImageMode::kRgba), cat({rgb, full({1, 2, 3}, 255, {.dtype = kUInt8})}, 0)));
  EXPECT_EQ(decode(c, ImageMode::kGray).shape(), (Shape{1, 2, 3}));
  const std::string path = ::testing::TempDir() + "/a.png";
  io::write_file_atomic(path, c);
  EXPECT_TRUE(same_bits(read_image(path), rgb));
}

TEST(Image, JpegsAreNearlyTheirPixels) {
  std::vector<uint8_t> smooth;
  for (int y = 0; y < 20; ++y)
    for (int x = 0; x < 24; ++x)
      for (int c = 0; c < 3; ++c) smooth.push_back(static_cast<uint8_t>(60 + 4 * x + 3 * y + 10 * c));
  for (bool progressive : {false, true}) {
    const Tensor got = decode(jpeg_bytes(smooth, 24, 20, 3, progressive));
    EXPECT_LE(amax(abs(got.to(kInt32) - chw(smooth, 20, 24, 3).to(kInt32))).item<int>(), 4);
  }
  const std::string gray = jpeg_bytes(pixels(64, 3), 8, 8, 1);
  EXPECT_EQ(decode(gray).shape(), (Shape{1, 8, 8}));
  EXPECT_EQ(decode(gray, ImageMode::kRgb).shape(), (Shape{3, 8, 8}));
  expect_error([&] { decode(gray, ImageMode::kRgba); },
               "x.img: is a JPEG, which has no alpha channel; need another mode");
  for (const ImageMode mode : {ImageMode::kUnchanged, ImageMode::kRgb})
    expect_error([&] { decode(jpeg_bytes(pixels(256, 3), 8, 8, 4), mode); },
                 "x.img: is a JPEG of four inks (CMYK), whose colours depend on a profile; need RGB or gray");
}

TEST(Image, DamagedFilesAreErrors) {
  const std::string png = png_bytes(pixels(18), 3, 2, PNG_FORMAT_RGB), jpeg = jpeg_bytes(pixels(192), 8, 8, 3);
  for (size_t n = 0; n < png.size(); ++n) EXPECT_THROW(decode(png.substr(0, n)), Error) << n;
  for (size_t n = 0; n + 2 < jpeg.size(); ++n) EXPECT_THROW(decode(jpeg.substr(0, n)), Error) << n;
  expect_error([&] { decode("GIF89a"); }, "x.img: is neither a PNG nor a JPEG");
  expect_error([&] { decode(png.substr(0, 40)); }, "x.img: the PNG is damaged: ");
  std::string huge = jpeg;  // 61680 x 61680 by its header
  const size_t frame = huge.find("\xff\xc0");
  for (size_t i = 5; i < 9; ++i) huge[frame + i] = '\xf0';
  expect_error([&] { decode(huge); }, "x.img is 61680 x 61680 pixels; need at most 2^28 pixels");
  huge[frame + 5] = huge[frame + 7] = '\x20';
  expect_error([&] { decode(huge); }, "more than a file of its size can have");
}

}  // namespace
}  // namespace weft::data
