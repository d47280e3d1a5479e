// Winograd's convolutions against convolutions in f64, within the rounding of their own transforms.
#include "ops/core/products/winograd.h"

#include <gtest/gtest.h>

#include <cmath>

#include "framework/autodiff/grad.h"
#include "framework/base/thread_pool.h"
#include "framework/testing/compare.h"
#include "framework/testing/values.h"
#include "ops/core/core.h"
#include "ops/core/products/conv.h"

namespace weft {
namespace {

using testing::Random;
using testing::random_tensor;
using testing::same_bits;

struct Case {
  Shape x, w;  // [N, C, H, W], [O, C, 3, 3]
  Shape lo, hi;
};
const Case kCases[] = {
    {{2, 32, 8, 8}, {32, 32, 3, 3}, {1, 1}, {1, 1}}, {{1, 40, 7, 9}, {36, 40, 3, 3}, {1, 1}, {1, 1}},
    {{3, 33, 5, 4}, {65, 33, 3, 3}, {0, 0}, {0, 0}}, {{2, 32, 6, 3}, {130, 32, 3, 3}, {2, 0}, {1, 2}},
    {{1, 70, 3, 3}, {32, 70, 3, 3}, {0, 0}, {0, 0}}, {{40, 32, 9, 8}, {48, 32, 3, 3}, {1, 1}, {1, 1}},
};

ConvDims dims_of(const Case& c) {
  return {.stride = {1, 1}, .lo = c.lo, .hi = c.hi, .dilation = {1, 1}, .interior = {0, 0}};
}

// The sums of magnitudes that bound the rounding: each transform with the magnitudes of its factors and terms.
Tensor magnitudes(const Tensor& t, const std::vector<std::vector<double>>& rows, int first) {
  Tensor y = t;
  for (int dim = first; dim < first + 2; ++dim) {
    std::vector<Tensor> parts;
    for (const auto& row : rows) {
      Tensor sum = zeros({}, {.dtype = kFloat64});
      for (size_t k = 0; k < row.size(); ++k) sum = sum + select(y, dim, static_cast<int64_t>(k)) * std::abs(row[k]);
      parts.push_back(sum);
    }
    y = stack(parts, dim);
  }
  return y;
}
const std::vector<std::vector<double>> kB = {{1, 0, 1, 0}, {0, 1, 1, 0}, {0, 1, 1, 0}, {0, 1, 0, 1}},
                                       kG = {{1, 0, 0}, {.5, .5, .5}, {.5, .5, .5}, {0, 0, 1}},
                                       kA = {{1, 1, 1, 0}, {0, 1, 1, 1}};

// For each result of the convolution, the bound of its error.
Tensor bound_of(const Case& c, const Tensor& x, const Tensor& w) {
  const int64_t rows = c.x[2] + c.lo[0] + c.hi[0] - 2, columns = c.x[3] + c.lo[1] + c.hi[1] - 2;
  const Tensor wide = pad(abs(x).to(kFloat64), {c.lo[1], c.hi[1] + columns % 2, c.lo[0], c.hi[0] + rows % 2});
  const Tensor tiles =
      windows(wide, std::vector<internal::Window>{{2, 4, 2}, {3, 4, 2}});                 // [N, C, I / 2, J / 2, 4, 4]
  const Tensor v = magnitudes(tiles, kB, 4), u = magnitudes(abs(w).to(kFloat64), kG, 2);  // u [O, C, 4, 4]
  const Tensor m = dot_general(v, u, {{4, 5}, {2, 3}, {1}, {1}});                         // [4, 4, N, I / 2, J / 2, O]
  const Tensor y = magnitudes(m, kA, 0);                                                  // [2, 2, N, I / 2, J / 2, O]
  const Tensor whole =
      reshape(permute(y, {2, 5, 3, 0, 4, 1}), {c.x[0], c.w[0], rows + rows % 2, columns + columns % 2});
  const double roundings = static_cast<double>(c.x[1]) + 14;
  return slice(slice(whole, 2, 0, rows), 3, 0, columns) * (roundings * 0x1p-24);
}

TEST(Winograd, IsTheConvolution) {
  Random random(1);
  for (const Case& c : kCases) {
    SCOPED_TRACE(::testing::Message() << c.x << " " << c.w);
    const Tensor x = random_tensor(kFloat32, c.x, random, -2, 2), w = random_tensor(kFloat32, c.w, random, -2, 2);
    ASSERT_TRUE(internal::suits_winograd(x.type(), w.shape(), dims_of(c)));
    const Tensor want = conv_general(x.to(kFloat64), w.to(kFloat64), dims_of(c));
    const Tensor bound = bound_of(c, x, w);
    const Tensor got = conv_general(x, w, dims_of(c));
    ASSERT_EQ(got.shape(), want.shape());
    EXPECT_LE(amax(abs(got.to(kFloat64) - want) / bound).item<double>(), 1);
    // Channels last in memory, a kernel with its outputs last: the same numbers in the same order.
    const Tensor last = permute(contiguous(permute(x, {0, 2, 3, 1})), {0, 3, 1, 2});
    const Tensor turned = permute(contiguous(permute(w, {2, 3, 1, 0})), {3, 2, 0, 1});
    EXPECT_TRUE(same_bits(contiguous(conv_general(last, turned, dims_of(c))), contiguous(got)));
    // Each image alone.
    for (int64_t n : {int64_t{0}, c.x[0] - 1})
      EXPECT_TRUE(same_bits(contiguous(conv_general(slice(x, 0, n, n + 1), w, dims_of(c))),
                            contiguous(slice(got, 0, n, n + 1))));
  }
}

// Small whole numbers: all transforms and sums are exact, so the results equal the results in f64.
TEST(Winograd, GradientsAreThoseOfTheConvolution) {
  Random random(2);
  for (const Case& c : kCases) {
    SCOPED_TRACE(::testing::Message() << c.x << " " << c.w);
    const auto whole = [&](const Shape& s) { return random_tensor(kInt64, s, random, -1, 1).to(kFloat32); };
    const Tensor x = whole(c.x), w = whole(c.w);
    const auto gradients = [&](DType t) {
      const Tensor a = x.to(t).requires_grad(), b = w.to(t).requires_grad();
      const Tensor y = conv_general(a, b, dims_of(c));
      const Tensor g = reshape(remainder(arange(y.numel()), 3) - 1, y.shape()).to(t).requires_grad();
      std::vector<Tensor> all = grad(sum(y * g), {a, b}, {.create_graph = true});
      const Tensor again = sum(all[0] * a) + sum(all[1] * b);
      for (const Tensor& second : grad(again, {a, b, g})) all.push_back(second);
      all.push_back(y);
      for (Tensor& each : all) each = contiguous(each.detach().to(kFloat64));
      return all;
    };
    const auto want = gradients(kFloat64), got = gradients(kFloat32);
    for (size_t i = 0; i < want.size(); ++i) EXPECT_TRUE(same_bits(got[i] + 0.0, want[i] + 0.0)) << i;  // -0 is 0
  }
}

TEST(Winograd, BitsDoNotDependOnTheNumberOfThreads) {
  Random random(3);
  const Case& c = kCases[5];
  const Tensor x = random_tensor(kFloat32, c.x, random, -2, 2), w = random_tensor(kFloat32, c.w, random, -2, 2);
  const auto run = [&](int threads) {
    const int before = num_threads();
    set_num_threads(threads);
    const Tensor a = x.requires_grad(), b = w.requires_grad();
    const Tensor y = conv_general(a, b, dims_of(c));
    std::vector<Tensor> all = grad(sum(square(y)), {a, b});
    all.push_back(y.detach());
    set_num_threads(before);
    return all;
  };
  const std::vector<Tensor> one = run(1), three = run(3);
  for (size_t i = 0; i < one.size(); ++i) EXPECT_TRUE(same_bits(contiguous(one[i]), contiguous(three[i]))) << i;
}

// The last block of tiles is smaller, and its product needs more scratch memory than the product of a whole block.
TEST(Winograd, TheLastBlockFitsItsMemory) {
  Random random(4);
  const Case c{{5, 64, 28, 28}, {64, 64, 3, 3}, {1, 1}, {1, 1}};  // 980 tiles: blocks of 512 and 468
  const Tensor x = random_tensor(kFloat32, c.x, random, -1, 1), w = random_tensor(kFloat32, c.w, random, -1, 1);
  const Tensor all = conv_general(x, w, dims_of(c));
  for (int64_t n = 0; n < c.x[0]; ++n)
    EXPECT_TRUE(
        same_bits(contiguous(conv_general(slice(x, 0, n, n + 1), w, dims_of(c))), contiguous(slice(all, 0, n, n + 1))));
}

TEST(Winograd, OtherConvolutionsAreProducts) {
  ConvDims d = dims_of(kCases[0]);
  const TensorType x{kFloat32, Device::cpu(), {2, 32, 8, 8}};
  const Shape w{32, 32, 3, 3};
  EXPECT_TRUE(internal::suits_winograd(x, w, d));
  EXPECT_FALSE(internal::suits_winograd({kFloat64, x.device, x.shape}, w, d));
  EXPECT_FALSE(internal::suits_winograd({kFloat32, Device::meta(), x.shape}, w, d));
  EXPECT_FALSE(internal::suits_winograd(x, {31, 32, 3, 3}, d));
  EXPECT_FALSE(internal::suits_winograd(x, {32, 32, 3, 1}, d));
  d.stride = {2, 1};
  EXPECT_FALSE(internal::suits_winograd(x, w, d));
}

}  // namespace
}  // namespace weft
