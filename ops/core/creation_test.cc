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

TEST(Creation, NumbersFitTheDtype) {
  const double nan = std::nan(""), inf = INFINITY;
  auto error = [](auto value, DType t) { return error_of([&] { full({2}, value, {.dtype = t}); }); };
  EXPECT_EQ(error(300, kUInt8), "full: 300 does not fit u8; need 0 to 255");
  EXPECT_EQ(error(-1, kUInt8), "full: -1 does not fit u8; need 0 to 255");
  EXPECT_EQ(error(int64_t{1} << 31, kInt32), "full: 2147483648 does not fit i32; need -2147483648 to 2147483647");
  EXPECT_EQ(error(1e30, kInt64), "full: 1e+30 does not fit i64; need -9223372036854775808 to 9223372036854775807");
  EXPECT_EQ(error(0x1p63, kInt64).substr(0, 46), "full: 9223372036854775808 does not fit i64; ne");
  EXPECT_EQ(error(nan, kInt32), "full: nan does not fit i32; need -2147483648 to 2147483647");
  EXPECT_EQ(error(-inf, kUInt8), "full: -inf does not fit u8; need 0 to 255");
  EXPECT_EQ(error(-1e5, kFloat16), "full: -1e+05 does not fit f16; need -65504 to 65504");
  EXPECT_EQ(error(1e300, kFloat32).substr(0, 34), "full: 1e+300 does not fit f32; nee");
  for (DType t : {kFloat64, kFloat32, kBFloat16, kFloat16, kFloat8E5M2, kBool})
    for (double v : {nan, inf, -inf, -7.0}) EXPECT_EQ(error(v, t), "") << t << " " << v;
  EXPECT_EQ(full({}, 3.4028235e38).item<float>(), std::numeric_limits<float>::max());  // rounded down
  EXPECT_EQ(full({}, 255.9, {.dtype = kUInt8}).item<int64_t>(), 255);
  EXPECT_EQ(full({}, INT64_MIN, {.dtype = kInt64}).item<int64_t>(), INT64_MIN);
  EXPECT_EQ(full({}, -0x1p63, {.dtype = kInt64}).item<int64_t>(), INT64_MIN);
  const Tensor u = full({2}, 7, {.dtype = kUInt8});
  const Tensor h = full({2}, 7, {.dtype = kFloat16}), on = ones({2}, {.dtype = kBool});
  EXPECT_EQ(error_of([&] { full_like(u, 300); }), "full: 300 does not fit u8; need 0 to 255");
  EXPECT_EQ(error_of([&] { pad(u, {1, 1}, nan); }), "pad: nan does not fit u8; need 0 to 255");
  EXPECT_EQ(error_of([&] { u < 300; }), "lt: 300 does not fit u8; need 0 to 255");
  EXPECT_EQ(error_of([&] { where(on, u, -1); }), "where: -1 does not fit u8; need 0 to 255");
  EXPECT_EQ(error_of([&] { masked_fill(h, on, -1e9); }), "masked_fill: -1e+09 does not fit f16; need -65504 to 65504");
  EXPECT_EQ((h * 1e9).to_vector<double>(), (std::vector<double>(2, inf)));  // arithmetic rounds
  EXPECT_EQ((u & -1).to_vector<int64_t>(), (std::vector<int64_t>(2, 7)));   // bits
  EXPECT_EQ(error_of([] { uniform({2}, 0, 1e6, {.dtype = kFloat16}); }),
            "uniform: 1e+06 does not fit f16; need -65504 to 65504");
  // A captured function refuses them as well.
  auto captured = [](std::span<const Tensor> in) { return std::vector<Tensor>{where(in[0] > 5, in[0], 256)}; };
  EXPECT_EQ(error_of([&] { capture_graph(captured, std::vector<TensorType>{u.type()}); }),
            "where: 256 does not fit u8; need 0 to 255");
}

// This holds also where lo + u (hi - lo) is rounded to hi, and where hi - lo has no value of the dtype.
TEST(Creation, UniformIsBelowItsEnd) {
  struct Case {
    double lo, hi;
    DType dtype;
    double largest;  // the largest value below hi
  };
  for (const Case& c :
       {Case{0, 1, kFloat16, 1 - 0x1p-11}, Case{0, 1, kBFloat16, 1 - 0x1p-8}, Case{-2, -1, kFloat16, -1 - 0x1p-10},
        Case{-1, 0, kBFloat16, -0x1p-24}, Case{3, 3.01, kFloat16, 3.009765625},
        Case{16777216, 16777218, kFloat32, 16777216}, Case{1, 1.0000001, kFloat32, 1},
        Case{0, 1, kFloat32, 1 - 0x1p-24}, Case{1, 1 + 0x1p-51, kFloat64, 1 + 0x1p-52}}) {
    const std::vector<double> v = uniform({40000}, c.lo, c.hi, {.dtype = c.dtype}).to_vector<double>();
    const auto [least, most] = std::minmax_element(v.begin(), v.end());
    EXPECT_GE(*least, c.lo) << c.lo << " " << c.dtype;
    EXPECT_LE(*most, c.largest) << c.lo << " " << c.dtype;
    EXPECT_GE(*most, c.largest - 0.001 * (c.hi - c.lo)) << c.lo << " " << c.dtype;
  }
  for (auto [end, t] : {std::pair(3e38, kFloat32), std::pair(1.5e308, kFloat64)}) {
    double most = 0, sum = 0;
    for (double v : uniform({10000}, -end, end, {.dtype = t}).to_vector<double>()) {
      most = std::max(most, std::abs(v));
      sum += v / end;
    }
    EXPECT_LE(most, end);
    EXPECT_GE(most, 0.99 * end);
    EXPECT_NEAR(sum / 10000, 0, 0.03);
  }
  EXPECT_EQ(uniform({2}, 3, 3).to_vector<double>(), (std::vector<double>{3, 3}));
}

TEST(Creation, BernoulliRefusesWhatIsNoProbability) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(error_of([&] { bernoulli(full({2}, nan)); }),
            "bernoulli: probabilities are from nan to nan; need numbers from 0 to 1");
  EXPECT_EQ(error_of([&] { bernoulli(full({2}, 1.5)); }),
            "bernoulli: probabilities are from 1.5 to 1.5; need numbers from 0 to 1");
  EXPECT_EQ(bernoulli(full({0}, nan)).numel(), 0);
  EXPECT_EQ(bernoulli(ones({2})).to_vector<float>(), (std::vector<float>{1, 1}));
}

TEST(Creation, RandomIntegersAreThoseOfTheDtype) {
  auto error = [](int64_t low, int64_t high, DType t) {
    return error_of([&] { randint(low, high, {2}, {.dtype = t}); });
  };
  EXPECT_EQ(error(0, 257, kUInt8),
            "randint: u8 does not have all integers from 0 to 256; need a range within 0 to 255, or another dtype");
  EXPECT_EQ(error(-1, 2, kUInt8).substr(0, 11), "randint: u8");
  EXPECT_EQ(error(0, 3, kBool).substr(0, 13), "randint: bool");
  EXPECT_EQ(error(0, 2050, kFloat16).substr(0, 12), "randint: f16");
  EXPECT_EQ(error(-257, 0, kBFloat16).substr(0, 13), "randint: bf16");
  for (auto [low, high, t] : {std::tuple(0, 256, kUInt8), std::tuple(0, 2, kBool), std::tuple(-2048, 2049, kFloat16),
                              std::tuple(-256, 257, kBFloat16)})
    EXPECT_EQ(error(low, high, t), "") << t;
}

TEST(Creation, Meta) {
  const Tensor t = randn({1 << 20, 1 << 20}, {.device = Device::meta()});
  EXPECT_EQ(t.shape(), Shape({1 << 20, 1 << 20}));
  EXPECT_EQ(t.device(), Device::meta());
  EXPECT_EQ(arange(5, {.device = Device::meta()}).device(), Device::meta());
  EXPECT_EQ((zeros({2}, {.device = Device::meta()}) + 1.0).device(), Device::meta());
  manual_seed(3);  // the generator of meta has no values
  advance_random_step();
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
  EXPECT_EQ(error_of([] { arange(250, 260, {.dtype = kUInt8}); }), "arange: 259 does not fit u8; need 0 to 255");
  EXPECT_EQ(error_of([] { arange(0.0, 300.0, {.dtype = kUInt8}); }), "arange: 299 does not fit u8; need 0 to 255");
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
