#include "ops/core/reductions/reduce.h"

#include <gtest/gtest.h>

#include <cmath>

#include "framework/autodiff/grad.h"
#include "framework/testing/gradcheck.h"
#include "ops/core/core.h"

namespace weft {
namespace {

using testing::error_of;
using V = std::vector<float>;

Tensor counting(const Shape& shape) { return reshape(arange(shape.numel(), {.dtype = kFloat32}), shape); }

TEST(Reduce, DimsAndKeepdim) {
  const Tensor x = counting({2, 3, 4});
  EXPECT_EQ(sum(x).item<float>(), 276);
  EXPECT_EQ(sum(x, {}).dim(), 0);
  EXPECT_EQ(sum(x, 1).shape(), Shape({2, 4}));
  EXPECT_EQ(sum(x, {-1, 0}).to_vector<float>(), (V{60, 92, 124}));
  EXPECT_EQ(x.sum({1}, true).shape(), Shape({2, 1, 4}));
  EXPECT_EQ(sum(x, {}, true).shape(), Shape({1, 1, 1}));
  EXPECT_EQ(error_of([&] { sum(x, {0, -3}); }), "sum: dims [0, -3] name a dim twice; need each once");
  EXPECT_EQ(error_of([&] { sum(x, 3); }), "sum: dim 3 is out of range for a tensor of 3 dimensions; need -3 to 2");
  EXPECT_EQ(error_of([] { amax(zeros({2, 0}), 1); }), "amax: dims [1] of [2, 0] have no elements; need one or more");
}

// The bound of ops/numerics/scan_order.h: 128 u times the sum of magnitudes, for a line of any length.
TEST(Reduce, ErrorOfRunningSumsDoesNotGrow) {
  const Tensor x = rand({int64_t{1} << 22});
  const V in = x.to_vector<float>();
  for (bool reverse : {false, true}) {  // reversed: neighbouring lines, which another loop sums
    const Tensor y = reverse ? cumsum(stack({x, x}, 1), 0, true).slice(1, 1, 2) : cumsum(x, 0);
    const V out = reshape(y, {-1}).to_vector<float>();
    double sum = 0, worst = 0;
    for (size_t k = 0; k < in.size(); ++k) {
      const size_t i = reverse ? in.size() - 1 - k : k;
      sum += in[i];
      worst = std::max(worst, std::fabs(out[i] - sum) / sum);
    }
    EXPECT_LT(worst, 130 * 0x1p-24) << reverse;
    EXPECT_LT(worst, 2e-6) << "the usual error is far below the bound";
  }
}

TEST(Reduce, Dtypes) {
  EXPECT_EQ(sum(ones({3}, {.dtype = kInt32})).dtype(), kInt64);
  EXPECT_EQ(sum(ones({3}, {.dtype = kBool})).item<int64_t>(), 3);
  EXPECT_EQ(sum(ones({3}, {.dtype = kBFloat16})).dtype(), kBFloat16);
  EXPECT_EQ(error_of([] { mean(ones({3}, {.dtype = kInt64})); }),
            "mean: got i64; need a floating-point dtype: convert with to(f32)");
  // The sum of the ones overflows f16 before the division; the mean must not.
  EXPECT_EQ(mean(full({1 << 17}, 1, {.dtype = kFloat16})).item<float>(), 1);
}

TEST(Reduce, Statistics) {
  const Tensor x = Tensor::from_vector({1, 2, 4, 9}, {4});
  EXPECT_FLOAT_EQ(mean(x).item<float>(), 4);
  EXPECT_FLOAT_EQ(var(x).item<float>(), 38.0f / 3);
  EXPECT_FLOAT_EQ(var(x, {}, 0).item<float>(), 9.5f);
  EXPECT_FLOAT_EQ(weft::std(x, {}, 0).item<float>(), std::sqrt(9.5f));
  EXPECT_EQ(var(counting({3, 5}), 1, 1, true).shape(), Shape({3, 1}));
  EXPECT_FLOAT_EQ(prod(x).item<float>(), 72);
}

TEST(Reduce, PlacesAndTests) {
  const Tensor x = Tensor::from_vector({3, 7, 7, -1, 0, -1}, {2, 3});
  EXPECT_EQ(argmax(x, 1).to_vector<int64_t>(), (std::vector<int64_t>{1, 1}));
  EXPECT_EQ(argmin(x, -1, true).to_vector<int64_t>(), (std::vector<int64_t>{0, 0}));
  EXPECT_EQ(argmax(x).item<int64_t>(), 1);
  EXPECT_TRUE(any(x).item<bool>());
  EXPECT_FALSE(all(x).item<bool>());
  EXPECT_EQ(all(x, 1).to_vector<bool>(), (std::vector<bool>{true, false}));
  EXPECT_FALSE(any(zeros({0})).item<bool>());
  EXPECT_TRUE(all(zeros({0})).item<bool>());
}

TEST(Reduce, LogSumExpIsStable) {
  const Tensor x = Tensor::from_vector({1000, 1000, -1000, -1000}, {2, 2});
  const V y = logsumexp(x, 1).to_vector<float>();
  EXPECT_FLOAT_EQ(y[0], 1000 + std::log(2.0f));
  EXPECT_FLOAT_EQ(y[1], -1000 + std::log(2.0f));
  const float inf = INFINITY;
  const V edge = logsumexp(Tensor::from_vector({-inf, -inf, inf, 0}, {2, 2}), -1).to_vector<float>();
  EXPECT_EQ(edge, (V{-inf, inf}));
}

TEST(Reduce, Cumsum) {
  const Tensor x = counting({2, 3});
  EXPECT_EQ(cumsum(x, 1).to_vector<float>(), (V{0, 1, 3, 3, 7, 12}));
  EXPECT_EQ(cumsum(x, -1, true).to_vector<float>(), (V{3, 3, 2, 12, 9, 5}));
  EXPECT_EQ(cumsum(x.to(kInt32), 0).dtype(), kInt64);
}

TEST(Reduce, TiesShareTheGradient) {
  const Tensor x = Tensor::from_vector({1, 5, 5, 2}, {4}).requires_grad();
  EXPECT_EQ(grad(amax(x), {x})[0].to_vector<float>(), (V{0, 0.5, 0.5, 0}));
  // The numbers of ties are not f16 and not bf16.
  for (const auto& [t, n, share] : {std::tuple{kFloat16, 70000, 240 * 0x1p-24f}, {kBFloat16, 257, 255 * 0x1p-16f}}) {
    const Tensor many = ones({n}, {.dtype = t}).requires_grad();
    for (const Tensor& y : {amax(many), amin(many)}) {
      const Tensor g = grad(y, {many})[0].to(kFloat32);
      EXPECT_EQ(g.to_vector<float>(), V(static_cast<size_t>(n), share)) << t;
    }
  }
}

TEST(Reduce, GradientOfProductWithZeros) {
  for (const auto& [in, want] :
       {std::pair<V, V>{{2, 0, 3}, {0, 6, 0}}, {{0, 0, 3}, {0, 0, 0}}, {{2, 3, 4}, {12, 8, 6}}}) {
    const Tensor x = Tensor::from_vector(in, {3}).requires_grad();
    EXPECT_EQ(grad(prod(x), {x})[0].to_vector<float>(), want);
  }
}

TEST(Reduce, Derivatives) {
  testing::Random random(3);
  const Tensor x = testing::random_tensor(kFloat64, {3, 4, 5}, random);
  std::vector<double> with_zeros = x.to_vector<double>();
  with_zeros[0] = with_zeros[7] = with_zeros[8] = 0;
  const Tensor z = Tensor::from_vector(with_zeros, x.shape());
  const std::vector<std::pair<const char*, std::function<Tensor(const Tensor&)>>> fns = {
      {"sum",
       [](const Tensor& t) {
         return square(sum(t, {0, 2}));
       }},
      {"mean", [](const Tensor& t) { return square(mean(t, 1, true)); }},
      {"amax",
       [](const Tensor& t) {
         return square(amax(t, {0, 1}));
       }},
      {"prod",
       [](const Tensor& t) {
         return prod(t, {0, 2});
       }},
      {"var", [](const Tensor& t) { return var(t, 2); }},
      {"std",
       [](const Tensor& t) {
         return weft::std(t, {1, 2});
       }},
      {"logsumexp", [](const Tensor& t) { return logsumexp(t, -1); }},
      {"cumsum", [](const Tensor& t) { return square(cumsum(t, 1)); }},
  };
  for (const auto& [name, fn] : fns) {
    SCOPED_TRACE(name);
    const auto& f = fn;
    auto g = [&f](std::span<const Tensor> in) { return std::vector<Tensor>{f(in[0])}; };
    EXPECT_TRUE(testing::gradcheck(g, {x}));
    EXPECT_TRUE(testing::gradcheck(g, {x}, {.captured = true}));
    EXPECT_TRUE(testing::gradgradcheck(g, {x}));
  }
  auto products = [](std::span<const Tensor> in) { return std::vector<Tensor>{prod(in[0], 1)}; };
  EXPECT_TRUE(testing::gradcheck(products, {z}));
  EXPECT_TRUE(testing::gradgradcheck(products, {z}));
}

}  // namespace
}  // namespace weft
