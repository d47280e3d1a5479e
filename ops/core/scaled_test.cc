// A 16-bit tensor times or over a number is computed in f32 and rounded once, as in PyTorch; other ops round the number
// first.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "framework/autodiff/grad.h"
#include "framework/dispatch/parameter.h"
#include "ops/core/core.h"

namespace weft {
namespace {

std::vector<float> values(const Tensor& t) { return t.to(kFloat32).to_vector<float>(); }

float rounded(float x, DType t) { return t == kFloat16 ? float(float16(x)) : float(bfloat16(x)); }

constexpr double kNumbers[] = {0.1, 3.3, 1e-8, 1e6, 257, -0.7, 0.5, 70000.5, 1.0 / 3};

TEST(Scaled, MulAndDivRoundOnce) {
  for (const DType t : {kBFloat16, kFloat16})
    for (const double n : kNumbers) {
      const Tensor x = arange(-40, 300).to(t);
      const auto f = static_cast<float>(n);
      std::vector<float> products, quotients, floors;
      for (const float v : values(x)) {
        products.push_back(rounded(v * f, t));
        quotients.push_back(rounded(v / f, t));
        floors.push_back(rounded(std::floor(v / f), t));
      }
      EXPECT_EQ(values(x * n), products) << n;
      EXPECT_EQ(values(n * x), products) << n;
      EXPECT_EQ(values(x / n), quotients) << n;
      EXPECT_EQ((x * n).dtype(), t);
      if (n == 257 || n == 0.5) {
        EXPECT_EQ(values(floor_divide(x, n)), floors) << n;
      }
      EXPECT_EQ(values(x[3] * n)[0], products[3]) << n;  // no dims
    }
}

TEST(Scaled, OtherOpsRoundTheNumber) {
  for (const DType t : {kBFloat16, kFloat16}) {
    const Tensor x = arange(1, 100).to(t);
    const float f = rounded(1.2345678F, t);
    std::vector<float> sums;
    for (const float v : values(x)) sums.push_back(rounded(v + f, t));
    EXPECT_EQ(values(x + 1.2345678), sums);
    EXPECT_EQ(values(1.2345678 + x), sums);
  }
}

TEST(Scaled, Gradients) {
  const Parameter w(ones({3}).to(kBFloat16), "w");
  const Tensor x = w.value();
  EXPECT_EQ(values(grad(sum(x * 0.3 + x / 3.3), {w})[0]),
            std::vector<float>(3, rounded(rounded(0.3F, kBFloat16) + rounded(1 / 3.3F, kBFloat16), kBFloat16)));
}

}  // namespace
}  // namespace weft
