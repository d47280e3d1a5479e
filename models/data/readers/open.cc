#include "models/data/readers/open.h"

#include <algorithm>
#include <cstring>

namespace weft::data::internal {

// Elements of type From as elements of type To.
template <class From, class To>
static void convert(std::string_view bytes, bool turn, To* to) {
  for (size_t i = 0; i < bytes.size() / sizeof(From); ++i) {
    char raw[sizeof(From)];
    std::memcpy(raw, bytes.data() + i * sizeof(From), sizeof(From));
    if (turn) std::reverse(raw, raw + sizeof(From));
    From v;
    std::memcpy(&v, raw, sizeof v);
    to[i] = static_cast<To>(v);
  }
}

std::string shown(std::string_view text) {
  std::string out;
  for (char c : text.substr(0, 60)) out += c >= ' ' && c < 127 ? c : '?';
  return text.size() > 60 ? out + "..." : out;
}

Tensor tensor_of(std::string_view bytes, char kind, int64_t size, bool big_endian, const Shape& shape,
                 const std::string& path) {
  const int64_t n = shape.numel();
  WEFT_CHECK_AS(kDataLoss, saturating_mul(n, size) == static_cast<int64_t>(bytes.size()), path, ": shape ", shape,
                " of ", size, "-byte elements needs ", saturating_mul(n, size), " bytes; got ", bytes.size());
  checked_numel(shape, path.c_str());  // also with an extent of 0, the others may be too large
  auto made = [&]<class From, class To>(From, To, DType type) {
    const Tensor t = Tensor::empty({type, Device::cpu(), shape});
    convert<From>(bytes, big_endian, t.view_for_kernel().as<To>());
    return t;
  };
  if (kind == 'f' && size == 4) return made(float(), float(), kFloat32);
  if (kind == 'f' && size == 8) return made(double(), double(), kFloat64);
  if (kind == 'f' && size == 2) return made(uint16_t(), uint16_t(), kFloat16);
  if (kind == 'i' && size == 8) return made(int64_t(), int64_t(), kInt64);
  if (kind == 'i' && size == 4) return made(int32_t(), int32_t(), kInt32);
  if (kind == 'i' && size == 2) return made(int16_t(), int16_t(), kInt16);
  if (kind == 'i' && size == 1) return made(int8_t(), int8_t(), kInt8);
  if (kind == 'u' && size == 4) return made(uint32_t(), int64_t(), kInt64);
  if (kind == 'u' && size == 2) return made(uint16_t(), int32_t(), kInt32);
  if (kind == 'u' && size == 1) return made(uint8_t(), uint8_t(), kUInt8);
  if (kind == 'b' && size == 1) {
    const Tensor t = Tensor::empty({kBool, Device::cpu(), shape});
    for (int64_t i = 0; i < n; ++i) t.view_for_kernel().as<uint8_t>()[i] = bytes[i] != 0;
    return t;
  }
  WEFT_CHECK_AS(kUnimplemented, false, path, ": elements are '", shown(std::string(1, kind)), size,
                "'; need f2 f4 f8 i1 i2 i4 i8 u1 u2 u4 or b1");
}

}  // namespace weft::data::internal
