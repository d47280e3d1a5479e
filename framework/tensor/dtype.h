// Element types: sizes, names, promotion, and the 16-bit float conversions (round to nearest even).
#pragma once
#include <bit>
#include <cstdint>
#include <iosfwd>
#include <string_view>
#include <type_traits>

namespace weft {

enum class DType : uint8_t {
  kFloat32,
  kFloat64,
  kBFloat16,
  kFloat16,
  kInt64,
  kInt32,
  kInt16,
  kInt8,
  kUInt8,
  kBool,
  kFloat8E4M3,  // storage only
  kFloat8E5M2,  // storage only
};
inline constexpr int kNumDTypes = 12;
inline constexpr DType kFloat32 = DType::kFloat32, kFloat64 = DType::kFloat64, kBFloat16 = DType::kBFloat16,
                       kFloat16 = DType::kFloat16, kInt64 = DType::kInt64, kInt32 = DType::kInt32,
                       kInt16 = DType::kInt16, kInt8 = DType::kInt8, kUInt8 = DType::kUInt8, kBool = DType::kBool,
                       kFloat8E4M3 = DType::kFloat8E4M3, kFloat8E5M2 = DType::kFloat8E5M2;
// PyTorch's other names in C++.
inline constexpr DType kFloat = kFloat32, kDouble = kFloat64, kHalf = kFloat16, kInt = kInt32, kLong = kInt64;

/// Bytes of one element.
constexpr int64_t itemsize(DType t) {
  constexpr int64_t k[] = {4, 8, 2, 2, 8, 4, 2, 1, 1, 1, 1, 1};
  return k[static_cast<int>(t)];
}
constexpr bool is_floating(DType t) { return t <= DType::kFloat16 || t >= DType::kFloat8E4M3; }
constexpr bool is_integral(DType t) { return t >= kInt64 && t <= kUInt8; }
/// The 16-bit floats, which are computed in f32.
constexpr bool is_16bit(DType t) { return t == kBFloat16 || t == kFloat16; }
/// Integers of 8 or 16 bits. Generated kernels read them; results of these types have kernels of their own.
constexpr bool is_small_integer(DType t) { return t >= kInt16 && t <= kUInt8; }

/// f(T{}) for the C++ type T that stores an integer dtype; uint8_t for bool. Not for floats.
template <class F>
constexpr decltype(auto) with_integer(DType t, const F& f) {
  switch (t) {
    case kInt64:
      return f(int64_t{});
    case kInt32:
      return f(int32_t{});
    case kInt16:
      return f(int16_t{});
    case kInt8:
      return f(int8_t{});
    default:
      return f(uint8_t{});
  }
}

/// Short names: f32 f64 bf16 f16 i64 i32 i16 i8 u8 bool f8e4m3 f8e5m2.
std::string_view to_string_view(DType t);
std::ostream& operator<<(std::ostream& out, DType t);
/// The inverse of to_string_view; throws, listing the names, on anything else.
DType parse_dtype(std::string_view name);

/// PyTorch's promotion of two tensor dtypes: f16 with bf16 gives f32, i8 with u8 gives i16, integers give way to
/// floats.
DType promote(DType a, DType b);

struct bfloat16 {
  uint16_t bits = 0;
  bfloat16() = default;
  bfloat16(float f) {
    uint32_t u = std::bit_cast<uint32_t>(f);
    if ((u & 0x7fffffffu) > 0x7f800000u) {
      bits = static_cast<uint16_t>((u >> 16) | 0x40);  // keep NaN a NaN
    } else {
      bits = static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1)) >> 16);
    }
  }
  operator float() const { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }
};

struct float16 {
  uint16_t bits = 0;
  float16() = default;
  float16(float f) : bits(from_float(f)) {}
  operator float() const { return to_float(bits); }
  static uint16_t from_float(float f);
  static float to_float(uint16_t h);
};

/// f(T{}) for the C++ type T that stores a float dtype of 16 bits or more.
template <class F>
constexpr decltype(auto) with_float(DType t, const F& f) {
  switch (t) {
    case kFloat64:
      return f(double{});
    case kBFloat16:
      return f(bfloat16{});
    case kFloat16:
      return f(float16{});
    default:
      return f(float{});
  }
}

/// The 8-bit storage formats (OCP FP8: E4M3 has no infinity, E5M2 is IEEE-like); values out of range saturate for E4M3.
uint8_t float8_from_float(float f, DType format);
float float8_to_float(uint8_t bits, DType format);

/// The dtype that stores values of the C++ type T.
template <class T>
struct DTypeOf;
template <class T>
concept HasDType = requires {
  DTypeOf<T>::value;
};
template <>
struct DTypeOf<float> : std::integral_constant<DType, kFloat32> {};
template <>
struct DTypeOf<double> : std::integral_constant<DType, kFloat64> {};
template <>
struct DTypeOf<bfloat16> : std::integral_constant<DType, kBFloat16> {};
template <>
struct DTypeOf<float16> : std::integral_constant<DType, kFloat16> {};
template <>
struct DTypeOf<int64_t> : std::integral_constant<DType, kInt64> {};
template <>
struct DTypeOf<long long> : std::integral_constant<DType, kInt64> {};
template <>
struct DTypeOf<int32_t> : std::integral_constant<DType, kInt32> {};
template <>
struct DTypeOf<int16_t> : std::integral_constant<DType, kInt16> {};
template <>
struct DTypeOf<int8_t> : std::integral_constant<DType, kInt8> {};
template <>
struct DTypeOf<uint8_t> : std::integral_constant<DType, kUInt8> {};
template <>
struct DTypeOf<bool> : std::integral_constant<DType, kBool> {};

}  // namespace weft
