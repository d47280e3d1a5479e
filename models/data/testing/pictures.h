// PNG and JPEG bytes, for tests.
#pragma once
#include <jpeglib.h>
#include <png.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace weft::data {

/// A PNG of 8-bit rows; format: PNG_FORMAT_GRAY, _RGB, _RGBA, ...
inline std::string png_bytes(const std::vector<uint8_t>& pixels, uint32_t width, uint32_t height, uint32_t format) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = width, image.height = height, image.format = format;
  png_alloc_size_t n = 0;
  png_image_write_to_memory(&image, nullptr, &n, 0, pixels.data(), 0, nullptr);
  std::string s(n, '\0');
  png_image_write_to_memory(&image, s.data(), &n, 0, pixels.data(), 0, nullptr);
  s.resize(n);
  return s;
}

/// A JPEG of best quality; 1 (gray), 3 (RGB) or 4 (CMYK) channels.
inline std::string jpeg_bytes(const std::vector<uint8_t>& pixels, int width, int height, int channels,
                              bool progressive = false) {
  jpeg_compress_struct c{};
  jpeg_error_mgr errors{};
  c.err = jpeg_std_error(&errors);
  jpeg_create_compress(&c);
  unsigned char* out = nullptr;
  unsigned long n = 0;
  jpeg_mem_dest(&c, &out, &n);
  c.image_width = static_cast<JDIMENSION>(width), c.image_height = static_cast<JDIMENSION>(height);
  c.input_components = channels, c.in_color_space = channels == 1 ? JCS_GRAYSCALE : channels == 3 ? JCS_RGB : JCS_CMYK;
  jpeg_set_defaults(&c);
  jpeg_set_quality(&c, 100, TRUE);
  if (progressive) jpeg_simple_progression(&c);
  jpeg_start_compress(&c, TRUE);
  while (c.next_scanline < c.image_height) {
    auto* row = const_cast<uint8_t*>(pixels.data()) + static_cast<size_t>(c.next_scanline) * width * channels;
    jpeg_write_scanlines(&c, &row, 1);
  }
  jpeg_finish_compress(&c);
  jpeg_destroy_compress(&c);
  const std::string s(reinterpret_cast<char*>(out), n);
  std::free(out);
  return s;
}

}  // namespace weft::data
