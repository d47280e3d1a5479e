#include "framework/io/zlib.h"

#include <zlib.h>

#include <algorithm>

#include "framework/base/error.h"

namespace weft::io {
namespace {

constexpr int kGzip = 15 + 16;              // largest window, gzip wrapper
constexpr size_t kPiece = size_t{1} << 30;  // zlib counts in 32 bits

// Calls `step` (deflate or inflate) with one piece of `bytes` after another until the stream ends, and removes the
// bytes read. `check` gets each status and the number of bytes written so far.
template <class Step, class Check>
std::string through(z_stream& z, std::string_view& bytes, const Step& step, const Check& check) {
  std::string out;
  std::string piece(size_t{1} << 18, '\0');
  int status = Z_OK;
  while (status != Z_STREAM_END) {
    if (z.avail_in == 0 && !bytes.empty()) {
      size_t n = std::min(bytes.size(), kPiece);
      z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
      z.avail_in = static_cast<uInt>(n);
      bytes.remove_prefix(n);
    }
    z.next_out = reinterpret_cast<Bytef*>(piece.data());
    z.avail_out = static_cast<uInt>(piece.size());
    status = step();
    out.append(piece.data(), piece.size() - z.avail_out);
    check(status, static_cast<int64_t>(out.size()));
  }
  return out;
}

}  // namespace

std::string gzip_compress(std::string_view bytes, int level) {
  WEFT_CHECK(level >= 1 && level <= 9, "gzip_compress: got level ", level, "; need 1 to 9");
  z_stream z{};
  WEFT_CHECK_AS(kResourceExhausted, deflateInit2(&z, level, Z_DEFLATED, kGzip, 9, Z_DEFAULT_STRATEGY) == Z_OK,
                "gzip_compress: out of memory");
  std::string out = through(
      z, bytes, [&] { return deflate(&z, bytes.empty() ? Z_FINISH : Z_NO_FLUSH); }, [](int, int64_t) {});
  deflateEnd(&z);
  return out;
}

std::string gzip_decompress(std::string_view bytes, int64_t max_bytes, std::string_view what) {
  z_stream z{};
  WEFT_CHECK_AS(kResourceExhausted, inflateInit2(&z, kGzip) == Z_OK, "gzip: out of memory for ", what);
  struct End {
    z_stream* z;
    ~End() { inflateEnd(z); }
  } end{&z};
  std::string out;
  do {  // each member of the file
    out += through(
        z, bytes, [&] { return inflate(&z, Z_NO_FLUSH); },
        [&](int status, int64_t made) {
          WEFT_CHECK_AS(kResourceExhausted, made <= max_bytes - static_cast<int64_t>(out.size()), "gzip: ", what,
                        " expands to more than ", max_bytes, " bytes");
          WEFT_CHECK_AS(kDataLoss, status == Z_OK || status == Z_STREAM_END, "gzip: ", what, " is ",
                        status == Z_BUF_ERROR ? "cut short" : "damaged or not gzip");
        });
    if (z.avail_in == 0 && bytes.empty()) return out;
    const auto next = [&](size_t i) -> int {  // a byte that is not read yet
      if (i < z.avail_in) return z.next_in[i];
      return i - z.avail_in < bytes.size() ? static_cast<unsigned char>(bytes[i - z.avail_in]) : -1;
    };
    WEFT_CHECK_AS(kDataLoss, next(0) == 0x1f && next(1) == 0x8b && inflateReset(&z) == Z_OK, "gzip: ", what,
                  " has bytes after its end");
  } while (true);
}

}  // namespace weft::io
