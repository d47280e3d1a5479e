// Both libraries report an error by calling a function that must not return. Ours throws an exception through their C
// frames, which free nothing. So this file frees the libraries' structures.
#include "models/data/readers/image.h"

#include <jpeglib.h>
#include <png.h>

#include <cstdio>
#include <cstring>

#include "framework/dispatch/state/state.h"
#include "framework/io/file.h"
#include "ops/core/indexing/view.h"

// After jpeglib.h, which it needs.
#include <jerror.h>

namespace weft::data {
namespace {

using Bytes = std::span<const std::byte>;

constexpr int64_t kMostPixels = int64_t{1} << 28;

std::string printable(const char* text) {
  std::string s;
  for (; *text; ++text) s += *text >= ' ' && *text < 127 ? *text : '?';
  return s;
}

void check_pixels(int64_t width, int64_t height, int64_t most, const std::string& what) {
  WEFT_CHECK_AS(kResourceExhausted, width * height <= kMostPixels, what, " is ", width, " x ", height,
                " pixels; need at most 2^28 pixels");
  WEFT_CHECK_AS(kDataLoss, width * height <= most, what, " is ", width, " x ", height,
                " pixels by its header, more than a file of its size can have");
}

// [height, width, channels] as [channels, height, width].
Tensor channels_first(const Tensor& x) { return permute(x, {2, 0, 1}).contiguous(); }
Tensor rows_of(int64_t height, int64_t width, int64_t channels) {
  return Tensor::empty({kUInt8, Device::cpu(), {height, width, channels}});
}

// ---- PNG ----

struct PngSource {
  Bytes bytes;
  const std::string& what;
};

void png_fail(png_structp png, png_const_charp message) {
  const auto* source = static_cast<const PngSource*>(png_get_error_ptr(png));
  throw Error(Code::kDataLoss, str_cat(source->what, ": the PNG is damaged: ", printable(message)));
}
void png_take(png_structp png, png_bytep to, size_t n) {
  auto* source = static_cast<PngSource*>(png_get_io_ptr(png));
  if (n > source->bytes.size()) png_error(png, "it is cut short");
  std::memcpy(to, source->bytes.data(), n);
  source->bytes = source->bytes.subspan(n);
}

Tensor decode_png(Bytes bytes, ImageMode mode, const std::string& what) {
  PngSource source{bytes, what};
  struct PngReader {
    png_structp png = nullptr;
    png_infop info = nullptr;
    ~PngReader() { png_destroy_read_struct(&png, &info, nullptr); }
  } r;
  r.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &source, png_fail, [](png_structp, png_const_charp) {});
  WEFT_CHECK_AS(kResourceExhausted, r.png && (r.info = png_create_info_struct(r.png)), what, ": out of memory");
  png_set_read_fn(r.png, &source, png_take);
  png_set_user_limits(r.png, 1 << 28, 1 << 28);
  png_set_chunk_malloc_max(r.png, 8 << 20);
  // Chunks besides the picture are not needed, and some are large when they are expanded.
  png_set_keep_unknown_chunks(r.png, PNG_HANDLE_CHUNK_NEVER, nullptr, -1);
  png_read_info(r.png, r.info);
  const int64_t width = png_get_image_width(r.png, r.info), height = png_get_image_height(r.png, r.info);
  const int depth = png_get_bit_depth(r.png, r.info), stored = png_get_channels(r.png, r.info);
  // Deflate makes at most 1032 bytes of one.
  check_pixels(width, height, static_cast<int64_t>(bytes.size()) * 1032 * 8 / (depth * stored), what);
  const int color = png_get_color_type(r.png, r.info);
  png_set_expand(r.png);  // palettes, 1 to 4 bits, transparent colours
  png_set_strip_16(r.png);
  const bool is_color = color & PNG_COLOR_MASK_COLOR;
  const bool has_alpha = (color & PNG_COLOR_MASK_ALPHA) || png_get_valid(r.png, r.info, PNG_INFO_tRNS);
  if (mode == ImageMode::kGray && is_color) png_set_rgb_to_gray_fixed(r.png, PNG_ERROR_ACTION_NONE, 29900, 58700);
  if ((mode == ImageMode::kRgb || mode == ImageMode::kRgba) && !is_color) png_set_gray_to_rgb(r.png);
  if ((mode == ImageMode::kRgb || mode == ImageMode::kGray) && has_alpha) png_set_strip_alpha(r.png);
  if (mode == ImageMode::kRgba && !has_alpha) png_set_add_alpha(r.png, 255, PNG_FILLER_AFTER);
  png_set_interlace_handling(r.png);
  png_read_update_info(r.png, r.info);
  const int64_t channels = png_get_channels(r.png, r.info);
  const Tensor out = rows_of(height, width, channels);
  WEFT_BUG_IF(static_cast<int64_t>(png_get_rowbytes(r.png, r.info)) != width * channels, "PNG rows of ",
              png_get_rowbytes(r.png, r.info), " bytes");
  std::vector<png_bytep> rows;
  for (int64_t y = 0; y < height; ++y) rows.push_back(out.view_for_kernel().as<uint8_t>() + y * width * channels);
  png_read_image(r.png, rows.data());
  png_read_end(r.png, nullptr);
  return channels_first(out);
}

// ---- JPEG ----

struct JpegErrors {
  jpeg_error_mgr base;
  const std::string* what;
};

[[noreturn]] void jpeg_fail(j_common_ptr c) {
  char text[JMSG_LENGTH_MAX];
  c->err->format_message(c, text);
  throw Error(Code::kDataLoss,
              str_cat(*reinterpret_cast<JpegErrors*>(c->err)->what, ": the JPEG is damaged: ", printable(text)));
}
// A warning means invented pixels, except the warning about bytes between markers.
void jpeg_warn(j_common_ptr c, int level) {
  if (level < 0 && c->err->msg_code != JWRN_EXTRANEOUS_DATA) jpeg_fail(c);
}

// Every scan of a progressive file decodes the whole picture again, so small files could take hours.
void jpeg_progress(j_common_ptr c) {
  if (c->is_decompressor && reinterpret_cast<j_decompress_ptr>(c)->input_scan_number > 64)
    ERREXIT(c, JERR_BAD_PROGRESSION);
}

Tensor decode_jpeg(Bytes bytes, ImageMode mode, const std::string& what) {
  WEFT_CHECK(mode != ImageMode::kRgba, what, ": is a JPEG, which has no alpha channel; need another mode");
  JpegErrors errors{};
  errors.what = &what;
  jpeg_decompress_struct c{};
  c.err = jpeg_std_error(&errors.base);
  errors.base.error_exit = jpeg_fail;
  errors.base.emit_message = jpeg_warn;
  struct JpegEnd {
    jpeg_decompress_struct* c;
    ~JpegEnd() { jpeg_destroy_decompress(c); }
  } end{&c};
  jpeg_create_decompress(&c);
  jpeg_progress_mgr progress{};
  progress.progress_monitor = jpeg_progress;
  c.progress = &progress;
  jpeg_mem_src(&c, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
  jpeg_read_header(&c, TRUE);
  // A block of 64 pixels takes a bit or more.
  check_pixels(c.image_width, c.image_height, static_cast<int64_t>(bytes.size()) * 8 * 64, what);
  const bool inks = c.jpeg_color_space == JCS_CMYK || c.jpeg_color_space == JCS_YCCK;
  WEFT_CHECK_AS(
      kUnimplemented, !inks, what,
      ": is a JPEG of four inks (CMYK), whose colours depend on a profile; need RGB or gray: convert it first");
  const bool gray = mode == ImageMode::kGray || (mode == ImageMode::kUnchanged && c.num_components == 1);
  c.out_color_space = gray ? JCS_GRAYSCALE : JCS_RGB;
  jpeg_start_decompress(&c);
  const int64_t width = c.output_width, channels = c.output_components;
  const Tensor out = rows_of(c.output_height, width, channels);
  while (c.output_scanline < c.output_height) {
    JSAMPROW row = out.view_for_kernel().as<uint8_t>() + c.output_scanline * width * channels;
    jpeg_read_scanlines(&c, &row, 1);
  }
  jpeg_finish_decompress(&c);
  return channels_first(out);
}

}  // namespace

Tensor decode_image(Bytes bytes, ImageMode mode, const std::string& what, std::source_location loc) {
  weft::internal::LineScope line(loc);
  NoGrad guard;
  const std::string_view s(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (s.starts_with("\x89PNG\r\n\x1a\n")) return decode_png(bytes, mode, what);
  if (s.starts_with("\xff\xd8\xff")) return decode_jpeg(bytes, mode, what);
  WEFT_CHECK_AS(kDataLoss, false, what, ": is neither a PNG nor a JPEG");
}

Tensor read_image(const std::string& path, ImageMode mode, std::source_location loc) {
  weft::internal::LineScope line(loc);
  const std::string s = io::read_file(path, int64_t{1} << 32);
  return decode_image(std::as_bytes(std::span(s)), mode, path, loc);
}

}  // namespace weft::data
