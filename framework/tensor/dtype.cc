#include "framework/tensor/dtype.h"

#include <algorithm>
#include <cmath>
#include <ostream>

#include "framework/base/error.h"

namespace weft {

namespace {
constexpr std::string_view kNames[kNumDTypes] = {"f32", "f64", "bf16", "f16",  "i64",    "i32",
                                                 "i16", "i8",  "u8",   "bool", "f8e4m3", "f8e5m2"};
}  // namespace

std::string_view to_string_view(DType t) { return kNames[static_cast<int>(t)]; }
std::ostream& operator<<(std::ostream& out, DType t) { return out << to_string_view(t); }

DType parse_dtype(std::string_view name) {
  for (int i = 0; i < kNumDTypes; ++i)
    if (name == kNames[i]) return static_cast<DType>(i);
  internal::fail(
      Code::kInvalidArgument,
      str_cat("unknown dtype '", name, "'; need one of f32 f64 bf16 f16 i64 i32 i16 i8 u8 bool f8e4m3 f8e5m2"));
}

DType promote(DType a, DType b) {
  if (a == b) return a;
  bool fa = is_floating(a), fb = is_floating(b);
  if (fa != fb) return fa ? a : b;
  if (fa) {
    if (a == kFloat64 || b == kFloat64) return kFloat64;
    return kFloat32;  // two different types of at most 32 bits
  }
  if (itemsize(a) == 1 && itemsize(b) == 1 && a != kBool && b != kBool) return kInt16;  // holds both signs
  if (a == kBool || b == kBool) return a == kBool ? b : a;
  return itemsize(a) > itemsize(b) ? a : b;
}

uint16_t float16::from_float(float f) {
  uint32_t u = std::bit_cast<uint32_t>(f), sign = (u >> 16) & 0x8000u, a = u & 0x7fffffffu;
  if (a > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u);
  if (a >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);  // 65520 and above round to infinity
  if (a < 0x38800000u) {                                               // subnormal half: let the adder round
    float scaled = std::bit_cast<float>(a) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(scaled) - 0x3f000000u));
  }
  uint32_t r = a + 0xfffu + ((a >> 13) & 1);
  return static_cast<uint16_t>(sign | ((r - 0x38000000u) >> 13));
}

float float16::to_float(uint16_t h) {
  uint32_t sign = static_cast<uint32_t>(h & 0x8000u) << 16, e = (h >> 10) & 31, m = h & 0x3ffu;
  if (e == 31) return std::bit_cast<float>(sign | 0x7f800000u | (m << 13));
  if (e == 0) {
    float f = static_cast<float>(m) * 0x1p-24f;
    return sign ? -f : f;
  }
  return std::bit_cast<float>(sign | ((e + 112) << 23) | (m << 13));
}

namespace {
struct Format8 {
  int mantissa, bias;
  float max;
};
Format8 format8(DType t) { return t == kFloat8E4M3 ? Format8{3, 7, 448.f} : Format8{2, 15, 57344.f}; }
}  // namespace

uint8_t float8_from_float(float f, DType format) {
  const Format8 p = format8(format);
  uint8_t sign = std::signbit(f) ? 0x80 : 0;
  if (std::isnan(f)) return sign | (format == kFloat8E4M3 ? 0x7f : 0x7e);
  float a = std::fabs(f);
  if (format == kFloat8E5M2 && a >= 61440.f) return sign | 0x7c;  // halfway to the next power: infinity
  a = std::min(a, p.max);
  int e = std::max(a > 0 ? std::ilogb(a) : -100, 1 - p.bias);
  long q = std::lrint(std::ldexp(a, p.mantissa - e));  // in [0, 2^(mantissa+1)]
  if (q == (2L << p.mantissa)) q >>= 1, ++e;
  if (q < (1L << p.mantissa)) return static_cast<uint8_t>(sign | q);
  return static_cast<uint8_t>(sign | ((e + p.bias) << p.mantissa) | (q & ((1L << p.mantissa) - 1)));
}

float float8_to_float(uint8_t bits, DType format) {
  const Format8 p = format8(format);
  int e = (bits & 0x7f) >> p.mantissa, m = bits & ((1 << p.mantissa) - 1);
  float v;
  if (format == kFloat8E4M3 && (bits & 0x7f) == 0x7f) {
    v = NAN;
  } else if (format == kFloat8E5M2 && e == 31) {
    v = m ? NAN : INFINITY;
  } else if (e == 0) {
    v = std::ldexp(static_cast<float>(m), 1 - p.bias - p.mantissa);
  } else {
    v = std::ldexp(1.f + std::ldexp(static_cast<float>(m), -p.mantissa), e - p.bias);
  }
  return bits & 0x80 ? -v : v;
}

}  // namespace weft
