#include "ops/core/round_to.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "framework/autodiff/grad.h"
#include "framework/dispatch/parameter.h"
#include "ops/core/core.h"

namespace weft {
namespace {

std::vector<float> values(const Tensor& t) { return t.to(kFloat32).to_vector<float>(); }

// All upper halves of f32 with some lower ones: every tie of the formats below.
Tensor many() {
  std::vector<float> x;
  for (uint32_t high = 0; high < 1u << 16; ++high)
    for (uint32_t low : {0u, 1u, 0xfffu, 0x1000u, 0x3000u, 0x7fffu, 0x8000u, 0x8001u}) {
      const float v = std::bit_cast<float>(high << 16 | low);
      if (!std::isnan(v)) x.push_back(v);
    }
  return Tensor::from_vector(x, {static_cast<int64_t>(x.size())});
}

TEST(RoundTo, EqualsConversionToTheFormatsThatAreDtypes) {
  const Tensor x = many();
  EXPECT_EQ(values(round_to(x, 8, 7)), values(x.to(kBFloat16)));
  EXPECT_EQ(values(round_to(x, 5, 10)), values(x.to(kFloat16)));
  EXPECT_EQ(values(round_to(x, 4, 3)), values(x.to(kFloat8E4M3)));
  EXPECT_EQ(values(round_to(x, 5, 2)), values(x.to(kFloat8E5M2)));
  EXPECT_EQ(values(round_to(x, 8, 23)), values(x));
}

TEST(RoundTo, KeepsSignsAndNan) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> y = values(round_to(Tensor::from_vector<float>({-0.0f, -0.2f, nan, -HUGE_VALF}, {4}), 2, 1));
  EXPECT_TRUE(std::signbit(y[0]));
  EXPECT_TRUE(std::signbit(y[1]));
  EXPECT_EQ(y[1], 0);
  EXPECT_TRUE(std::isnan(y[2]));
  EXPECT_EQ(y[3], -6);
}

TEST(RoundTo, BlocksRunAlongTheLastDim) {
  // MXFP4: scales 2^(6 - 2), 2^(-4 - 2) and, of the short block, 2^(0 - 2).
  const Tensor x =
      Tensor::from_vector<float>({100, 9, -1, 0.0625f, 0.05f, 0.0f, 1, 0.3f, 1, 0, 0, 0, 0, 0, 0, 1.9f}, {2, 8});
  const std::vector<float> y = values(round_to(x, 2, 1, 3));
  const std::vector<float> want{96, 8, -0.0f, 0.0625f, 0.046875f, 0, 1, 0.25f, 1, 0, 0, 0, 0, 0, 0, 1.5f};
  EXPECT_EQ(y, want);
  const Tensor t = x.transpose(0, 1);  // the same along another dim of the memory
  EXPECT_EQ(values(round_to(t.contiguous(), 2, 1, 2)), values(round_to(t, 2, 1, 2)));
}

TEST(RoundTo, GradientPassesUnchanged) {
  const Parameter p(Tensor::from_vector<float>({0.3f, -1e6f, 5}, {3}));
  const Tensor loss = sum(round_to(p, 4, 3) * Tensor::from_vector<float>({1, 2, 3}, {3}));
  EXPECT_EQ(values(grad(loss, {p})[0]), (std::vector<float>{1, 2, 3}));
}

}  // namespace
}  // namespace weft
