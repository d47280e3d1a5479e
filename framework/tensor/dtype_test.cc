// Tests the conversions of the small floats, for all their values, against definitions in exact double arithmetic.
#include "framework/tensor/dtype.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "framework/base/error.h"

namespace weft {
namespace {

/// x rounded to a format with `mantissa` bits, exponents from `emin` and largest finite value `max`: round to nearest,
/// ties to even, overflow to infinity from half a step above max.
double rounded(double x, int mantissa, int emin, double max) {
  if (!std::isfinite(x) || x == 0) return x;
  int e = std::max(std::ilogb(x), emin);
  double step = std::ldexp(1, e - mantissa), r = std::nearbyint(x / step) * step;
  return std::fabs(r) > max ? std::copysign(INFINITY, x) : r;
}

std::vector<float> interesting(double smallest) {
  std::vector<float> v = {0.f, -0.f, INFINITY, -INFINITY, 1e-45f, 3.4e38f, -3.4e38f};
  std::mt19937 random(1);
  for (int i = 0; i < 200000; ++i) {
    uint32_t u = random();
    float f;
    std::memcpy(&f, &u, 4);
    if (!std::isnan(f)) v.push_back(f);
    v.push_back(
        static_cast<float>(std::ldexp(static_cast<double>(random() % 64) / 4, static_cast<int>(random() % 40) - 20)));
    v.push_back(static_cast<float>(smallest * (random() % 64) / 8));
  }
  return v;
}

TEST(DType, Float16AllBitsRoundTrip) {
  for (uint32_t b = 0; b < 65536; ++b) {
    float f = float16::to_float(static_cast<uint16_t>(b));
    int e = b >> 10 & 31, m = b & 1023;
    double want = e == 31 ? (m ? NAN : INFINITY) : e ? std::ldexp(1024 + m, e - 25) : std::ldexp(m, -24);
    if (std::isnan(want)) {
      EXPECT_TRUE(std::isnan(f) && std::isnan(static_cast<float>(float16(f))));
      continue;
    }
    ASSERT_EQ(f, b & 0x8000 ? -want : want);
    ASSERT_EQ(float16::from_float(f), b);
  }
}

TEST(DType, BFloat16AllBitsRoundTrip) {
  for (uint32_t b = 0; b < 65536; ++b) {
    bfloat16 x;
    x.bits = static_cast<uint16_t>(b);
    float f = x;
    if (std::isnan(f))
      EXPECT_TRUE(std::isnan(static_cast<float>(bfloat16(f))));
    else
      ASSERT_EQ(bfloat16(f).bits, b);
  }
}

TEST(DType, RoundsToNearestEven) {
  for (float f : interesting(0x1p-24)) {
    float got = float16(f);
    ASSERT_EQ(got, rounded(f, 10, -14, 65504)) << f;
    ASSERT_EQ(std::signbit(got), std::signbit(f)) << f;
    got = bfloat16(f);
    ASSERT_EQ(got, rounded(f, 7, -126, 0x1.fep127)) << f;
    ASSERT_EQ(std::signbit(got), std::signbit(f)) << f;
  }
}

TEST(DType, Float8AllBitsRoundTrip) {
  for (DType t : {kFloat8E4M3, kFloat8E5M2})
    for (int b = 0; b < 256; ++b) {
      float f = float8_to_float(static_cast<uint8_t>(b), t);
      int mantissa = t == kFloat8E4M3 ? 3 : 2, bias = t == kFloat8E4M3 ? 7 : 15;
      int e = (b & 127) >> mantissa, m = b & ((1 << mantissa) - 1);
      double want = e ? std::ldexp((1 << mantissa) + m, e - bias - mantissa) : std::ldexp(m, 1 - bias - mantissa);
      if (t == kFloat8E5M2 && e == 31) want = m ? NAN : INFINITY;
      if (t == kFloat8E4M3 && (b & 127) == 127) want = NAN;
      if (std::isnan(want)) {
        EXPECT_TRUE(std::isnan(f) && std::isnan(float8_to_float(float8_from_float(f, t), t)));
        continue;
      }
      ASSERT_EQ(f, b & 128 ? -want : want) << b;
      ASSERT_EQ(float8_from_float(f, t), b) << b;
    }
}

TEST(DType, Float8RoundsToNearestEven) {
  for (float f : interesting(0x1p-16)) {
    double e5 = rounded(f, 2, -14, 57344);
    ASSERT_EQ(float8_to_float(float8_from_float(f, kFloat8E5M2), kFloat8E5M2), e5) << f;
    double e4 = rounded(f, 3, -6, 448);
    if (std::isinf(e4)) e4 = std::copysign(448, f);  // saturates
    ASSERT_EQ(float8_to_float(float8_from_float(f, kFloat8E4M3), kFloat8E4M3), e4) << f;
  }
}

TEST(DType, Names) {
  for (int i = 0; i < kNumDTypes; ++i)
    EXPECT_EQ(parse_dtype(to_string_view(static_cast<DType>(i))), static_cast<DType>(i));
  try {
    parse_dtype("float");
    FAIL();
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "unknown dtype 'float'; need one of f32 f64 bf16 f16 i64 i32 i16 i8 u8 bool f8e4m3 f8e5m2");
  }
}

TEST(DType, Promotion) {
  EXPECT_EQ(promote(kBFloat16, kFloat16), kFloat32);
  EXPECT_EQ(promote(kInt64, kFloat16), kFloat16);
  EXPECT_EQ(promote(kFloat32, kFloat64), kFloat64);
  EXPECT_EQ(promote(kUInt8, kBool), kUInt8);
  EXPECT_EQ(promote(kUInt8, kInt8), kInt16);
  EXPECT_EQ(promote(kInt8, kBool), kInt8);
  EXPECT_EQ(promote(kUInt8, kInt16), kInt16);
  EXPECT_EQ(promote(kInt16, kInt32), kInt32);
  EXPECT_EQ(promote(kInt8, kFloat16), kFloat16);
  EXPECT_EQ(promote(kInt32, kInt64), kInt64);
  for (int a = 0; a < kNumDTypes; ++a)
    for (int b = 0; b < kNumDTypes; ++b) {
      DType x = static_cast<DType>(a), y = static_cast<DType>(b);
      EXPECT_EQ(promote(x, y), promote(y, x));
      EXPECT_EQ(promote(x, x), x);
    }
}

}  // namespace
}  // namespace weft
