#include "ops/composite/math/cumulative.h"

#include <cmath>
#include <limits>

#include "framework/autodiff/grad.h"
#include "ops/composite/testing/composite_table.h"
#include "ops/core/creation.h"
#include "ops/core/indexing/view.h"
#include "ops/core/pointwise.h"

namespace weft::testing {
namespace {

using Args = std::span<const Tensor>;
constexpr double kInf = std::numeric_limits<double>::infinity();
const double kNan = std::nan("");

// f(earlier, x) along the rows of [3, 11].
std::function<Reals(const std::vector<Reals>&)> running(Real (*f)(Real, Real)) {
  return [f](const std::vector<Reals>& in) {
    Reals y = in[0];
    for (size_t i = 0; i < y.size(); ++i)
      if (i % 11) y[i] = f(y[i - 1], y[i]);
    return y;
  };
}

const Operand kData{Shape{3, 11}, kFloat32, -1.5, 1.5};

const std::vector<CompositeRow> kTable = {
    {"cumprod", {kData}, [](Args a) { return cumprod(a[0], 1); }, running([](Real a, Real b) { return a * b; })},
    {"logcumsumexp", {kData}, [](Args a) { return logcumsumexp(a[0], -1); }, running([](Real a, Real b) {
       return std::log(std::exp(a) + std::exp(b));
     })},
    {"cummax", {kData}, [](Args a) { return cummax(a[0], 1).values; }, running([](Real a, Real b) {
       return std::max(a, b);
     })},
    {"cummin", {kData}, [](Args a) { return cummin(a[0], 1).values; }, running([](Real a, Real b) {
       return std::min(a, b);
     })},
    {"diff",
     {kData},
     [](Args a) { return diff(a[0], 2, 0); },
     [](const std::vector<Reals>& in) {
       Reals y;
       for (int i = 0; i < 11; ++i) y.push_back(in[0][i] - 2 * in[0][11 + i] + in[0][22 + i]);
       return y;
     }},
};
WEFT_TEST_COMPOSITES(Cumulative, kTable);

Tensor of(const std::vector<double>& v) {
  return Tensor::from_vector<double>(v, Shape{static_cast<int64_t>(v.size())});
}

TEST(Cumulative, ExtremesHaveIndicesAndKeepNan) {
  ValuesIndices m = cummax(of({1, 3, 2, 3, kNan, 9, kNan}), 0);
  expect_values(m.values, {1, 3, 3, 3, kNan, kNan, kNan});
  expect_values(m.indices, {0, 1, 1, 3, 4, 4, 6});
  m = cummin(Tensor::from_vector<int64_t>({3, INT64_MIN, INT64_MAX, INT64_MIN}, {4}), 0);
  EXPECT_EQ(m.values.to_vector<int64_t>(), (std::vector<int64_t>{3, INT64_MIN, INT64_MIN, INT64_MIN}));
  expect_values(m.indices, {0, 1, 1, 3});
  expect_values(cummax(of({-kInf, -kInf}), 0).indices, {0, 1});
  expect_values(cummax(Tensor::from_vector<bool>({false, true, false}, {3}), 0).values, {0, 1, 1});
  expect_values(cummax(of({4}).reshape({}), 0).values, {4});
  EXPECT_EQ(cummin(zeros({2, 0, 3}), 1).indices.shape(), (Shape{2, 0, 3}));
  Tensor x = of({1, 3, 2, 3}).requires_grad();
  expect_values(grad(cummax(x, 0).values.sum(), {x})[0], {1, 2, 0, 1});
}

TEST(Cumulative, ProductsOfZerosAndIntegers) {
  Tensor x = of({2, 0, 3}).requires_grad();
  expect_values(cumprod(x, 0), {2, 0, 0});
  expect_values(grad(cumprod(x, 0).sum(), {x})[0], {1, 8, 0});
  const Tensor i = cumprod(Tensor::from_vector<int32_t>({1, 2, 3, 4, 5}, {5}), 0);
  EXPECT_EQ(i.dtype(), kInt64);
  expect_values(i, {1, 2, 6, 24, 120});
  EXPECT_EQ(cumprod(zeros({0, 2}), 0).shape(), (Shape{0, 2}));
  EXPECT_EQ(cumprod(ones({}, {.dtype = kBool}), 0).dtype(), kInt64);
}

TEST(Cumulative, LogSumsOfInfinities) {
  const std::vector<double> y = logcumsumexp(of({-kInf, -kInf, 1000, 1000, kInf, 0}), 0).to_vector<double>();
  EXPECT_EQ(y[1], -kInf);
  EXPECT_EQ(y[2], 1000);
  EXPECT_DOUBLE_EQ(y[3], 1000 + std::log(2));
  EXPECT_EQ(y[5], kInf);
  Tensor x = of({-kInf, 0, 0}).requires_grad();
  expect_values(grad(logcumsumexp(x, 0).slice(0, 2, 3).sum(), {x})[0], {0, 0.5, 0.5});
}

TEST(Cumulative, Differences) {
  const Tensor x = of({1, 4, 9, 16});
  expect_values(diff(x), {3, 5, 7});
  expect_values(diff(x, 3), {0});
  expect_values(diff(x, 0), {1, 4, 9, 16});
  EXPECT_EQ(diff(x, 9).shape(), (Shape{0}));
  expect_values(diff(x, 1, 0, of({0}), of({20})), {1, 3, 5, 7, 4});
  expect_values(diff(Tensor::from_vector<bool>({true, true, false}, {3})), {0, 1});
}

TEST(CumulativeErrors, NameTheFunction) {
  EXPECT_EQ(error_of([] { diff(zeros({})); }), "diff: got a scalar; need a dim");
  EXPECT_EQ(error_of([] { diff(zeros({3}), -1); }), "diff: n is -1; need 0 or more");
  EXPECT_EQ(error_of([] { logcumsumexp(zeros({3}, {.dtype = kInt64}), 0); }),
            "logcumsumexp: operand is i64[3]; need a floating-point dtype");
  expect_error([] { cumprod(zeros({3}), 1); }, "cumprod: dim 1 is out of range");
  expect_error([] { cummax(zeros({3}), -2); }, "cummax: dim -2 is out of range");
}

}  // namespace
}  // namespace weft::testing
