#include "models/data/readers/idx.h"

#include <algorithm>

#include "framework/io/file.h"
#include "framework/io/zlib.h"
#include "models/data/readers/open.h"

namespace weft::data {

Tensor read_idx(const std::string& path, std::source_location loc) {
  weft::internal::LineScope line(loc);
  std::string s = io::read_file(path, internal::kMostFileBytes);
  if (s.starts_with("\x1f\x8b"))
    s = io::gzip_decompress(s, std::min(internal::kMostFileBytes, static_cast<int64_t>(s.size()) * 1032 + 64), path);
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(s[i]); };
  WEFT_CHECK_AS(kDataLoss, s.size() >= 4 && byte(0) == 0 && byte(1) == 0, path,
                ": is not an IDX file; need two zero bytes, the type and the number of dims");
  const size_t dims = byte(3);
  WEFT_CHECK_AS(kDataLoss, dims <= kMaxDims, path, ": has ", dims, " dims; need at most ", kMaxDims);
  WEFT_CHECK_AS(kDataLoss, s.size() >= 4 + 4 * dims, path, ": ends inside its header");
  Shape shape;
  for (size_t d = 0; d < dims; ++d) {
    uint32_t n = 0;
    for (size_t i = 0; i < 4; ++i) n = n << 8 | byte(4 + 4 * d + i);
    shape.push_back(n);
  }
  struct IdxType {
    int code;
    char kind;
    int64_t size;
  };
  for (const IdxType& t : {IdxType{0x08, 'u', 1}, IdxType{0x09, 'i', 1}, IdxType{0x0b, 'i', 2}, IdxType{0x0c, 'i', 4},
                           IdxType{0x0d, 'f', 4}, IdxType{0x0e, 'f', 8}})
    if (t.code == byte(2))
      return internal::tensor_of(std::string_view(s).substr(4 + 4 * dims), t.kind, t.size, true, shape, path);
  WEFT_CHECK_AS(kDataLoss, false, path, ": has the element type ", static_cast<int>(byte(2)),
                "; need 8, 9, 11, 12, 13 or 14");
}

}  // namespace weft::data
