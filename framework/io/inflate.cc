#include "framework/io/inflate.h"

#include <zlib.h>

#include "framework/base/error.h"

namespace weft::io {

std::string inflate_raw(std::string_view bytes, int64_t size, std::string_view what) {
  constexpr int64_t kMost = int64_t{1} << 30;  // zlib counts in 32 bits
  const int64_t length = static_cast<int64_t>(bytes.size());
  WEFT_CHECK_AS(kResourceExhausted, length <= kMost && size <= kMost, what, " is larger than ", kMost,
                " bytes; need a smaller one, or one that is stored without compression");
  WEFT_CHECK_AS(kDataLoss, size >= 0 && size <= length * 1032 + 64, what, ": ", length, " compressed bytes cannot be ",
                size, " bytes");
  z_stream z{};
  WEFT_CHECK_AS(kResourceExhausted, inflateInit2(&z, -15) == Z_OK, "inflate: out of memory for ", what);
  std::string out(static_cast<size_t>(size) + 1, '\0');  // one byte more, to detect a longer stream
  z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  z.avail_in = static_cast<uInt>(length);
  z.next_out = reinterpret_cast<Bytef*>(out.data());
  z.avail_out = static_cast<uInt>(out.size());
  const int status = inflate(&z, Z_FINISH);
  const bool whole = status == Z_STREAM_END && z.avail_in == 0 && z.avail_out == 1;
  inflateEnd(&z);
  WEFT_CHECK_AS(kDataLoss, whole, what, " is damaged: it does not inflate to ", size, " bytes");
  out.pop_back();
  return out;
}

uint32_t crc32_of(std::string_view bytes) {
  uLong crc = crc32(0, nullptr, 0);
  for (size_t at = 0; at < bytes.size(); at += size_t{1} << 30) {
    const std::string_view piece = bytes.substr(at, size_t{1} << 30);
    crc = crc32(crc, reinterpret_cast<const Bytef*>(piece.data()), static_cast<uInt>(piece.size()));
  }
  return static_cast<uint32_t>(crc);
}

}  // namespace weft::io
