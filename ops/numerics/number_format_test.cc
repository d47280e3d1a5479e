#include "ops/numerics/number_format.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "framework/base/testing/error_of.h"

namespace weft::formats {
namespace {

using weft::testing::error_of;

TEST(NumberFormat, KnownValues) {
  struct Row {
    const char* name;
    double max, normal, subnormal, epsilon, bits;
  };
  // finfo of numpy and ml_dtypes; tools/precision/ml_dtypes_check.py compares them again.
  const Row rows[] = {
      {"FP32", 0x1.fffffep127, 0x1p-126, 0x1p-149, 0x1p-23, 32},
      {"TF32", 0x1.ffcp127, 0x1p-126, 0x1p-136, 0x1p-10, 19},
      {"FP16", 65504, 0x1p-14, 0x1p-24, 0x1p-10, 16},
      {"BF16", 0x1.fep127, 0x1p-126, 0x1p-133, 0x1p-7, 16},
      {"E4M3", 448, 0x1p-6, 0x1p-9, 0.125, 8},
      {"E5M2", 57344, 0x1p-14, 0x1p-16, 0.25, 8},
      {"E2M1", 6, 1, 0.5, 0.5, 4},
      {"MXFP8", 448, 0x1p-6, 0x1p-9, 0.125, 8.25},
      {"MXFP4", 6, 1, 0.5, 0.5, 4.25},
      {"NVFP4", 6, 1, 0.5, 0.5, 4.5},
  };
  for (const Row& r : rows) {
    const NumberFormat f = number_format(r.name);
    EXPECT_EQ(f.real->max(), r.max) << r.name;
    EXPECT_EQ(f.real->min_normal(), r.normal) << r.name;
    EXPECT_EQ(f.real->min_subnormal(), r.subnormal) << r.name;
    EXPECT_EQ(f.real->epsilon(), r.epsilon) << r.name;
    EXPECT_EQ(f.bits(), r.bits) << r.name;
  }
  EXPECT_EQ(number_format("INT8").whole->least(), -128);
  EXPECT_EQ(number_format("INT4").whole->greatest(), 7);
  EXPECT_NE(error_of([] { number_format("FP5"); }).find("no number format 'FP5'; need one of FP32, TF32"),
            std::string::npos);
}

// Every code below 17 bits: decode, encode, and the values around the middle between neighbours.
TEST(NumberFormat, EveryCodeRoundTripsAndMiddlesGoToEven) {
  for (const NumberFormat& row : number_formats()) {
    if (!row.real || row.block || row.real->bits() > 19) continue;
    const FloatFormat f = *row.real;
    for (uint32_t code = 0; code < 1u << f.bits(); ++code) {
      const double x = decode(f, code);
      if (std::isnan(x)) {
        EXPECT_TRUE(std::isnan(decode(f, encode(f, x)))) << row.name << " " << code;
        continue;
      }
      ASSERT_EQ(encode(f, x), code) << row.name;
      if (x < 0 || x >= f.max() || code >> (f.bits() - 1)) continue;
      const double next = decode(f, code + 1), middle = (x + next) / 2;
      ASSERT_EQ(encode(f, middle), code + (code & 1)) << row.name;
      ASSERT_EQ(encode(f, std::nextafter(middle, 0.0)), code) << row.name;
      ASSERT_EQ(encode(f, std::nextafter(middle, 1e300)), code + 1) << row.name;
      ASSERT_EQ(rounded(f, -middle), -rounded(f, middle)) << row.name;
    }
  }
}

TEST(NumberFormat, BeyondTheGreatestNumber) {
  const FloatFormat e4m3 = float_format(4, 3), e5m2 = float_format(5, 2), e2m1 = float_format(2, 1);
  EXPECT_EQ(rounded(e4m3, 464), 448);
  EXPECT_EQ(rounded(e4m3, 1e30), 448);
  EXPECT_EQ(rounded(e4m3, -HUGE_VAL), -448);
  EXPECT_EQ(rounded(e4m3, 464, Overflow::kNan), 448);
  EXPECT_TRUE(std::isnan(rounded(e4m3, 464.1, Overflow::kNan)));
  EXPECT_EQ(encode(e4m3, -465, Overflow::kNan), 0xffu);
  EXPECT_EQ(rounded(e5m2, 61439), 57344);
  EXPECT_EQ(rounded(e5m2, 61440), HUGE_VAL);
  EXPECT_EQ(rounded(e5m2, 1e30, Overflow::kSaturate), 57344);
  EXPECT_EQ(rounded(e2m1, -7), -6);
  EXPECT_EQ(rounded(e2m1, 5), 4);
  EXPECT_TRUE(std::signbit(rounded(e2m1, -0.25)));
  EXPECT_EQ(rounded(e2m1, 0.25), 0);
}

// Codes of ml_dtypes 0.6 for these f32 values; written by tools/precision/ml_dtypes_check.py --table.
TEST(NumberFormat, CodesOfMlDtypes) {
  struct Row {
    float x;
    uint32_t bf16, f16, e4m3, e5m2, e2m1;
  };
  const Row rows[] = {
#include "ops/numerics/testing/number_format_codes.inc"
  };
  for (const Row& r : rows) {
    EXPECT_EQ(encode(float_format(8, 7), r.x), r.bf16) << r.x;
    EXPECT_EQ(encode(float_format(5, 10), r.x), r.f16) << r.x;
    EXPECT_EQ(encode(float_format(4, 3), r.x, Overflow::kNan), r.e4m3) << r.x;
    EXPECT_EQ(encode(float_format(5, 2), r.x), r.e5m2) << r.x;
    EXPECT_EQ(encode(float_format(2, 1), r.x), r.e2m1) << r.x;
  }
}

TEST(NumberFormat, BlocksShareAScale) {
  std::vector<double> x{100, -3, 0.4, 0}, zeros(4);
  EXPECT_EQ(block_exponent(float_format(2, 1), x), 6 - 2);
  EXPECT_EQ(block_exponent(float_format(4, 3), x), 6 - 8);
  EXPECT_EQ(block_exponent(float_format(4, 3), zeros), 0);
  std::vector<uint32_t> codes;
  EXPECT_EQ(round_block(number_format("MXFP4"), 1, x, &codes), 16);
  EXPECT_EQ(x, (std::vector<double>{96, 0, 0, 0}));  // 6.25, -0.19, 0.025 and 0 of 16
  EXPECT_EQ(codes, (std::vector<uint32_t>{7, 8, 0, 0}));
}

// The scale of NVFP4 follows the block's greatest magnitude, so that this one is exact up to E4M3's rounding.
TEST(NumberFormat, Nvfp4HasTwoScales) {
  const NumberFormat f = number_format("NVFP4");
  std::vector<double> x(40);
  std::mt19937 random(3);
  for (double& v : x) v = std::normal_distribution<double>()(random);
  x[0] = 2688;  // 448 * 6: the scale of the tensor is 1
  const std::vector<double> before = x;
  EXPECT_EQ(tensor_scale(f, x), 1);
  round_values(f, x);
  EXPECT_EQ(x[0], 2688);
  for (size_t first : {16u, 32u}) {
    double most = 0, error = 0;
    for (size_t i = first; i < std::min<size_t>(first + 16, 40); ++i) {
      most = std::max(most, std::fabs(before[i]));
      error = std::max(error, std::fabs(x[i] - before[i]));
    }
    EXPECT_LE(error, most * (1.0 / 6 + 1.0 / 16));
    EXPECT_GT(error, 0);
  }
}

TEST(NumberFormat, FixedPoint) {
  const IntegerFormat q = fixed_point(3, 4);
  EXPECT_EQ(q.bits, 8);
  EXPECT_EQ(decode(q, q.greatest()), 7.9375);
  EXPECT_EQ(decode(q, q.least()), -8);
  EXPECT_EQ(encode(q, 1.03125), 16);  // 16.5 to even
  EXPECT_EQ(encode(q, 1e9), 127);
  EXPECT_EQ(encode(q, -1e9), -128);
  EXPECT_EQ(encode(q, std::numeric_limits<double>::quiet_NaN()), 0);
  for (int64_t c = q.least(); c <= q.greatest(); ++c) EXPECT_EQ(encode(q, decode(q, c)), c);

  EXPECT_EQ(error_of([] { fixed_point(20, 20); }), "fixed_point: Q20.20; need 1 to 31 bits beside the sign");
  EXPECT_EQ(number_format("Q3.4").whole->scale, 0.0625);
  EXPECT_NE(error_of([] { number_format("Q3.x"); }).find("or Qm.n"), std::string::npos);
}

}  // namespace
}  // namespace weft::formats
