#include "ops/composite/images/pool.h"

#include <cmath>
#include <limits>

#include "compiler/exec/compile.h"
#include "framework/autodiff/grad.h"
#include "framework/testing/compare.h"
#include "ops/composite/testing/composite_table.h"
#include "ops/core/core.h"

namespace weft::testing {
namespace {

using Args = std::span<const Tensor>;

// The windows of planes [h, w], by their definition: fn gets the elements of each that are inside, and the number of
// places inside the input or its padding.
Reals pooled(const Reals& x, int64_t h, int64_t w, const Shape& kernel, const Shape& stride, const Shape& pad,
             const Shape& dilation, const Shape& out, const std::function<Real(const Reals&, int64_t)>& fn) {
  Reals y;
  for (size_t plane = 0; plane < x.size() / (h * w); ++plane)
    for (int64_t i = 0; i < out[0]; ++i)
      for (int64_t j = 0; j < out[1]; ++j) {
        Reals inside;
        int64_t places = 0;
        for (int64_t a = 0; a < kernel[0]; ++a)
          for (int64_t b = 0; b < kernel[1]; ++b) {
            const int64_t r = i * stride[0] + a * dilation[0] - pad[0], q = j * stride[1] + b * dilation[1] - pad[1];
            places += r < h + pad[0] && q < w + pad[1];
            if (r >= 0 && r < h && q >= 0 && q < w) inside.push_back(x[(plane * h + r) * w + q]);
          }
        y.push_back(fn(inside, places));
      }
  return y;
}
Real greatest(const Reals& v, int64_t) {
  Real m = -std::numeric_limits<Real>::infinity();
  for (Real x : v) m = std::max(m, x);
  return m;
}
Real total(const Reals& v) {
  Real s = 0;
  for (Real x : v) s += x;
  return s;
}

const Operand kPlanes{Shape{2, 3, 7, 6}};

const std::vector<CompositeRow> kTable = {
    {"max_pool2d",
     {kPlanes},
     [](Args a) { return max_pool2d(a[0], 2); },
     [](const std::vector<Reals>& in) {
       return pooled(in[0], 7, 6, {2, 2}, {2, 2}, {0, 0}, {1, 1}, {3, 3}, greatest);
     }},
    {"max_pool2d_overlapping",
     {kPlanes},
     [](Args a) {
       return max_pool2d(a[0], {3, 2}, {2, 1}, {1, 1}, {1, 2}, true);
     },
     [](const std::vector<Reals>& in) {
       return pooled(in[0], 7, 6, {3, 2}, {2, 1}, {1, 1}, {1, 2}, {4, 6}, greatest);
     }},
    {"max_pool1d",
     {{Shape{3, 9}}},
     [](Args a) { return max_pool1d(a[0], 4, 3, 0, 1, true); },
     [](const std::vector<Reals>& in) {
       return pooled(in[0], 1, 9, {1, 4}, {1, 3}, {0, 0}, {1, 1}, {1, 3}, greatest);
     }},
    {"avg_pool2d",
     {kPlanes},
     [](Args a) { return avg_pool2d(a[0], 2); },
     [](const std::vector<Reals>& in) {
       return pooled(in[0], 7, 6, {2, 2}, {2, 2}, {0, 0}, {1, 1}, {3, 3},
                     [](const Reals& v, int64_t) { return total(v) / 4; });
     }},
    {"avg_pool2d_padded",
     {kPlanes},
     [](Args a) { return avg_pool2d(a[0], 3, 2, 1, true); },
     [](const std::vector<Reals>& in) {
       return pooled(in[0], 7, 6, {3, 3}, {2, 2}, {1, 1}, {1, 1}, {4, 4},
                     [](const Reals& v, int64_t places) { return total(v) / static_cast<Real>(places); });
     }},
    {"avg_pool2d_inside",
     {kPlanes},
     [](Args a) { return avg_pool2d(a[0], 3, 2, 1, false, false); },
     [](const std::vector<Reals>& in) {
       return pooled(in[0], 7, 6, {3, 3}, {2, 2}, {1, 1}, {1, 1}, {4, 3},
                     [](const Reals& v, int64_t) { return total(v) / static_cast<Real>(v.size()); });
     }},
    {"adaptive_avg_pool2d_even",
     {{Shape{2, 6, 4}}},
     [](Args a) {
       return adaptive_avg_pool2d(a[0], {3, 1});
     },
     [](const std::vector<Reals>& in) {
       return pooled(in[0], 6, 4, {2, 4}, {2, 4}, {0, 0}, {1, 1}, {3, 1},
                     [](const Reals& v, int64_t) { return total(v) / 8; });
     }},
    {"adaptive_avg_pool1d",
     {{Shape{1, 2, 7}}},
     [](Args a) { return adaptive_avg_pool1d(a[0], 3); },
     [](const std::vector<Reals>& in) {  // parts [0, 3), [2, 5), [4, 7)
       return pooled(in[0], 1, 7, {1, 3}, {1, 2}, {0, 0}, {1, 1}, {1, 3},
                     [](const Reals& v, int64_t) { return total(v) / 3; });
     }},
    {"adaptive_max_pool1d",
     {{Shape{1, 2, 7}}},
     [](Args a) { return adaptive_max_pool1d(a[0], 3); },
     [](const std::vector<Reals>& in) {
       return pooled(in[0], 1, 7, {1, 3}, {1, 2}, {0, 0}, {1, 1}, {1, 3}, greatest);
     }},
};

WEFT_TEST_COMPOSITES(Pool, kTable);

TEST(PoolFunctions, TheFirstOfEqualValuesGetsTheGradient) {
  const Tensor x = Tensor::from_vector({0, 0, 0, 5, 5, 1}, {1, 1, 6}).requires_grad();
  const Tensor g = grad(max_pool1d(x, 3, 3).sum(), {x})[0];
  EXPECT_EQ(g.to_vector<float>(), (std::vector<float>{1, 0, 0, 1, 0, 0}));
}

TEST(PoolFunctions, NanIsTheLargest) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Tensor x = Tensor::from_vector({1, nan, 2, 3}, {1, 1, 4}).requires_grad();
  const Tensor y = max_pool1d(x, 2);
  EXPECT_TRUE(std::isnan(y.to_vector<float>()[0]));
  EXPECT_EQ(y.to_vector<float>()[1], 3);
  EXPECT_EQ(grad(y.sum(), {x})[0].to_vector<float>(), (std::vector<float>{0, 1, 0, 1}));
}

TEST(PoolFunctions, LargeWindowsGiveTheGradientToTheFirstToo) {
  const Tensor x = zeros({1, 1, 5, 5}).requires_grad();
  std::vector<float> first(25, 0);
  first[0] = 1;
  EXPECT_EQ(grad(max_pool2d(x, 5).sum(), {x})[0].to_vector<float>(), first);
}

TEST(PoolFunctions, SmallWindowsAreFusedWithWhatIsBeforeThem) {
  auto step = compile([](Tensor x) { return max_pool2d(relu(x), 2); });
  step(ones({2, 3, 8, 8}));
  const std::string stats = step.stats().to_string();
  EXPECT_NE(stats.find(" 1 launches per step"), std::string::npos) << stats;
}

TEST(PoolFunctions, FoldIsTheTransposeOfUnfold) {
  Random random(5);
  const Tensor x = random_tensor(kFloat64, {2, 3, 5, 6}, random);
  const Tensor columns = unfold(x, {2, 3}, {2, 1}, {1, 0}, {1, 2});
  EXPECT_EQ(columns.shape(), (Shape{2, 18, 10}));
  EXPECT_EQ(columns.to_vector<double>()[5 * 10 + 3],  // kernel element (1, 2) of window (1, 1)
            x.to_vector<double>()[(1 + 2 - 1) * 6 + 2 + 2]);
  const Tensor v = random_tensor(kFloat64, columns.shape(), random);
  const double a = (columns * v).sum().item<double>();
  const double b = (x * fold(v, {5, 6}, {2, 3}, {2, 1}, {1, 0}, {1, 2})).sum().item<double>();
  EXPECT_NEAR(a, b, 1e-10);
}

// Each part is computed once: a million outputs of four elements take no million nodes.
TEST(PoolFunctions, AdaptivePoolsOfMoreOutputsThanElements) {
  const Tensor x = Tensor::from_vector<float>({1, 3, 7, 4}, {1, 1, 4});
  using V = std::vector<float>;
  const auto both = [](Tensor x) { return std::vector<Tensor>{adaptive_avg_pool1d(x, 9), adaptive_max_pool1d(x, 9)}; };
  for (const std::vector<Tensor>& r : {both(x), compile(both)(x)}) {
    EXPECT_EQ(r[0].to_vector<float>(), (V{1, 1, 2, 3, 5, 7, 5.5, 4, 4}));
    EXPECT_EQ(r[1].to_vector<float>(), (V{1, 1, 3, 3, 7, 7, 7, 4, 4}));
  }
  const Tensor y = adaptive_avg_pool1d(x, 1000001);
  EXPECT_EQ(y[0][0][0].item<float>(), 1);
  EXPECT_EQ(y[0][0][500000].item<float>(), 5);
  EXPECT_EQ(y[0][0][1000000].item<float>(), 4);
}

TEST(PoolFunctions, ErrorsSayWhatIsNeeded) {
  const Tensor x = ones({2, 3, 4, 4});
  EXPECT_EQ(error_of([&] { max_pool2d(x, 5); }),
            "max_pool2d: a window of 5 elements does not fit into spatial dim 0 of input [2, 3, 4, 4] with padding [0, "
            "0]; need 4 or fewer");
  EXPECT_EQ(error_of([&] { max_pool2d(x, 2, 2, 2); }),
            "max_pool2d: padding is [2, 2]; need 0 to half of kernel_size [2, 2]");
  EXPECT_EQ(error_of([&] { avg_pool2d(x, 2, 2, 0, false, true, 0); }),
            "avg_pool2d: divisor_override is 0; need another number");
  EXPECT_EQ(error_of([&] { max_unpool2d(x, x, 2); }),
            "max_unpool2d: indices are f32[2, 3, 4, 4] for x f32[2, 3, 4, 4]; need integers of x's shape");
  const Tensor at = zeros({2, 3, 4, 4}, {.dtype = kInt64});
  EXPECT_EQ(error_of([&] {
              max_unpool2d(x, at, 2, 2, 0, {8, 10});
            }),
            "max_unpool2d: output_size is 10 in spatial dim 1; need more than 6 and less than 10");
  expect_error([&] { max_unpool2d(x, at + 64, 2); }, "max_unpool2d: an index is not a position");
  EXPECT_EQ(error_of([&] { avg_pool1d(x, 2); }),
            "avg_pool1d: input is f32[2, 3, 4, 4]; need [N, C, 1 spatial dim] or [C, 1 spatial dim]");
  for (int64_t n : {int64_t{1} << 31, INT64_MAX})
    EXPECT_EQ(error_of([&] { adaptive_avg_pool2d(x, n); }), str_cat("adaptive_avg_pool2d: shape [2, 3, ", n, ", ", n,
                                                                    "] has too many elements; need fewer than 2^58"));
  EXPECT_EQ(error_of([&] { adaptive_avg_pool2d(x, 0); }), "adaptive_avg_pool2d: output_size is [0, 0]; need 1 or more");
  EXPECT_EQ(error_of([&] { fold(ones({1, 7, 4}), {4, 4}, 2); }), "fold: input is f32[1, 7, 4]; need [N, C * 4, 9]");
}

}  // namespace
}  // namespace weft::testing
