// The values of the tensor cores' operands.
#pragma once
#include <bit>
#include <cstdint>

namespace weft::cuda {

inline float from_f16(uint16_t h) {
  const uint32_t sign = (h & 0x8000u) << 16, a = h & 0x7fffu;
  if (a >= 0x7c00) return std::bit_cast<float>(sign | 0x7f800000u | (a & 0x3ff) << 13);
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(std::bit_cast<float>(a << 13) * 0x1p112f));
}
inline float from_half(uint16_t h, bool bf16) { return bf16 ? std::bit_cast<float>(uint32_t{h} << 16) : from_f16(h); }
/// The tensor core ignores the low 13 bits.
inline float from_tf32(uint32_t v) { return std::bit_cast<float>(v & 0xffffe000u); }

}  // namespace weft::cuda
