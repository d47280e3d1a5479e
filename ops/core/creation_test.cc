#include "ops/core/creation.h"

#include <gtest/gtest.h>

#include <cmath>

#include "framework/dispatch/capture.h"
#include "framework/dispatch/interpreter.h"
#include "framework/testing/compare.h"
#include "ops/core/core.h"

namespace weft {
namespace {

using testing::error_of;
using testing::same_bits;

TEST(Creation, Fills) {
  EXPECT_EQ(zeros({2, 3}).to_vector<float>(), std::vector<float>(6, 0));
  EXPECT_EQ(full({2}, 7, {.dtype = kInt64}).to_vector<int64_t>(), (std::vector<int64_t>{7, 7}));
  EXPECT_EQ(full({}, (int64_t{1} << 53) + 1, {.dtype = kInt64}).item<int64_t>(), (int64_t{1} << 53) + 1);
  EXPECT_EQ(full({3}, full({}, 2.5)).to_vector<float>(), std::vector<float>(3, 2.5f));
  EXPECT_EQ(ones_like(zeros({4}, {.dtype = kBool})).dtype(), kBool);
  EXPECT_EQ(full_like(zeros({2}, {.dtype = kBFloat16}), 1.5).to_vector<float>(), std::vector<float>(2, 1.5f));
  EXPECT_TRUE(zeros({2, 2}).is_contiguous());
  EXPECT_EQ(error_of([] { zeros({2, -1}); }), "full: negative extent in shape [2, -1]; need 0 or more");
}

TEST(Creation, Meta) {
  const Tensor t = randn({1 << 20, 1 << 20}, {.device = Device::meta()});
  EXPECT_EQ(t.shape(), Shape({1 << 20, 1 << 20}));
  EXPECT_EQ(t.device(), Device::meta());
  EXPECT_EQ(arange(5, {.device = Device::meta()}).device(), Device::meta());
  EXPECT_EQ((zeros({2}, {.device = Device::meta()}) + 1.0).device(), Device::meta());
}

TEST(Creation, Arange) {
  EXPECT_EQ(arange(4).dtype(), kInt64);
  EXPECT_EQ(arange(4).to_vector<int64_t>(), (std::vector<int64_t>{0, 1, 2, 3}));
  EXPECT_EQ(arange(5, 0, -2).to_vector<int64_t>(), (std::vector<int64_t>{5, 3, 1}));
  EXPECT_EQ(arange(0, 5, 2).to_vector<int64_t>(), (std::vector<int64_t>{0, 2, 4}));
  EXPECT_EQ(arange(3, 3).numel(), 0);
  EXPECT_EQ(arange(3, 1).numel(), 0);
  EXPECT_EQ(arange(1.0).dtype(), kFloat32);
  EXPECT_EQ(arange(0.0, 1.0, 0.25).to_vector<float>(), (std::vector<float>{0, 0.25, 0.5, 0.75}));
  EXPECT_EQ(arange(3, {.dtype = kInt32}).dtype(), kInt32);
  EXPECT_EQ(error_of([] { arange(0, 3, 0); }), "arange: step is 0; need another");
}

TEST(Creation, ArangeAtTheEndsOfInt64) {
  constexpr int64_t kLeast = INT64_MIN, kMost = INT64_MAX;
  auto step = [](int64_t start, int64_t end, int64_t by) { return arange(start, end, by).to_vector<int64_t>(); };
  EXPECT_EQ(step(kMost - 3, kMost, 2), (std::vector<int64_t>{kMost - 3, kMost - 1}));
  EXPECT_EQ(step(kLeast + 2, kLeast, -1), (std::vector<int64_t>{kLeast + 2, kLeast + 1}));
  EXPECT_EQ(step(kLeast, kMost, kMost), (std::vector<int64_t>{kLeast, -1, kMost - 1}));
  EXPECT_EQ(step(kMost, kLeast, kLeast), (std::vector<int64_t>{kMost, -1}));
  EXPECT_EQ(step(kMost, kLeast, 1), (std::vector<int64_t>{}));
  EXPECT_NE(error_of([] { arange(kLeast, kMost, 1); }).find("too many elements"), std::string::npos);
  EXPECT_NE(error_of([] { arange(0.0, 1e300, 1.0); }).find("too many elements"), std::string::npos);
  EXPECT_EQ(error_of([] { arange(250, 260, {.dtype = kUInt8}); }),
            "arange: 259 does not fit u8; need a dtype that holds all values from 250 to 259");
  // The same values compiled: the range is interpreted from the graph.
  auto g = capture_graph([](std::span<const Tensor>) { return std::vector<Tensor>{arange(kMost - 2, kMost)}; }, {});
  EXPECT_EQ(interpret(*g, {})[0].to_vector<int64_t>(), (std::vector<int64_t>{kMost - 2, kMost - 1}));
}

TEST(Creation, Eye) {
  EXPECT_EQ(eye(2, 3).to_vector<float>(), (std::vector<float>{1, 0, 0, 0, 1, 0}));
  EXPECT_EQ(eye(2).shape(), Shape({2, 2}));
}

TEST(Random, SameSeedSameBits) {
  manual_seed(5);
  const Tensor a = randn({3, 7}), b = rand({3, 7});
  manual_seed(5);
  EXPECT_TRUE(same_bits(a, randn({3, 7})));
  EXPECT_TRUE(same_bits(b, rand({3, 7})));
  EXPECT_FALSE(same_bits(b, rand({3, 7})));  // the next op
}

TEST(Random, UniformIsBelowOneInEveryDtype) {
  manual_seed(1);
  for (DType t : {kFloat32, kFloat64, kBFloat16, kFloat16}) {
    const std::vector<double> v = rand({4096}, {.dtype = t}).to_vector<double>();
    double mean = 0;
    for (double x : v) {
      EXPECT_GE(x, 0);
      EXPECT_LT(x, 1);
      mean += x / static_cast<double>(v.size());
    }
    // Five standard deviations of the mean, plus half a step of the coarsest grid (bf16: 2^-8).
    EXPECT_NEAR(mean, 0.5, 5 / std::sqrt(12.0 * 4096) + 0x1p-9);
  }
}

TEST(Random, NormalMoments) {
  manual_seed(2);
  const int64_t n = 1 << 16;
  const std::vector<double> v = randn({n}).to_vector<double>();
  double mean = 0, square = 0;
  for (double x : v) mean += x / n, square += x * x / n;
  EXPECT_NEAR(mean, 0, 5 / std::sqrt(n));
  EXPECT_NEAR(square, 1, 5 * std::sqrt(2.0 / n));  // the variance of x^2 is 2
}

TEST(Random, Integers) {
  manual_seed(3);
  std::vector<int> seen(5);
  for (int64_t i : randint(-2, 3, {1000}).to_vector<int64_t>()) {
    ASSERT_GE(i, -2);
    ASSERT_LT(i, 3);
    ++seen[i + 2];
  }
  for (int count : seen) EXPECT_NEAR(count, 200, 5 * std::sqrt(1000 * 0.2 * 0.8));
  EXPECT_NE(error_of([] { randint(3, 3, {1}); }).find("randint: range [3, 3)"), std::string::npos);
}

TEST(Random, CapturedEqualsEagerStep) {
  manual_seed(4);
  auto fn = [](std::span<const Tensor>) { return std::vector<Tensor>{randn({5}), rand({5})}; };
  Ref<Graph> g = capture_graph(fn, {});
  std::vector<Tensor> eager;
  {
    internal::EagerStep step;
    eager = fn({});
  }
  const std::vector<Tensor> replayed = interpret(*g, {});
  EXPECT_TRUE(same_bits(eager[0], replayed[0]));
  EXPECT_TRUE(same_bits(eager[1], replayed[1]));
  const float before = eager[1].to_vector<float>()[0];
  advance_random_step();
  EXPECT_NE(interpret(*g, {})[1].to_vector<float>()[0], before);
}

}  // namespace
}  // namespace weft
