#include "ops/composite/math/reduction.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "compiler/exec/compile.h"
#include "framework/autodiff/grad.h"
#include "ops/composite/testing/composite_table.h"
#include "ops/core/creation.h"
#include "ops/core/indexing/view.h"
#include "ops/core/pointwise.h"

namespace weft::testing {
namespace {

using Args = std::span<const Tensor>;
const double kNan = std::nan("");

// Rows of [3, 7], reduced one by one.
std::function<Reals(const std::vector<Reals>&)> rows(Real (*f)(const Reals&)) {
  return [f](const std::vector<Reals>& in) {
    Reals y;
    for (int i = 0; i < 3; ++i) y.push_back(f(row_of(in[0], i, 7)));
    return y;
  };
}
Real total(const Reals& v) {
  Real s = 0;
  for (Real x : v) s += x;
  return s;
}
Real variance(const Reals& v) {
  Real s = 0;
  for (Real x : v) s += (x - total(v) / v.size()) * (x - total(v) / v.size());
  return s / (v.size() - 1);
}

const Operand kData{Shape{3, 7}};

const std::vector<CompositeRow> kTable = {
    {"max",
     {kData},
     [](Args a) { return max(a[0]); },
     [](const std::vector<Reals>& in) { return Reals{*std::max_element(in[0].begin(), in[0].end())}; }},
    {"min_dim", {kData}, [](Args a) { return min(a[0], 1).values; }, rows([](const Reals& v) {
       return *std::min_element(v.begin(), v.end());
     })},
    {"max_two", {kData, kData}, [](Args a) { return max(a[0], a[1]); }, each([](Real a, Real b) {
       return std::max(a, b);
     })},
    {"aminmax_min", {kData}, [](Args a) { return aminmax(a[0], -1).min; }, rows([](const Reals& v) {
       return *std::min_element(v.begin(), v.end());
     })},
    {"aminmax_max",
     {kData},
     [](Args a) { return aminmax(a[0]).max; },
     [](const std::vector<Reals>& in) { return Reals{*std::max_element(in[0].begin(), in[0].end())}; }},
    {"nansum", {kData}, [](Args a) { return nansum(a[0], 1); }, rows(total)},
    {"nanmean", {kData}, [](Args a) { return nanmean(a[0], 1); }, rows([](const Reals& v) { return total(v) / 7; })},
    {"std_mean_std", {kData}, [](Args a) { return std_mean(a[0], 1).std; }, rows([](const Reals& v) {
       return std::sqrt(variance(v));
     })},
    {"std_mean_mean", {kData}, [](Args a) { return std_mean(a[0], 1).mean; }, rows([](const Reals& v) {
       return total(v) / 7;
     })},
    {"var_mean_var", {kData}, [](Args a) { return var_mean(a[0], 1, 0).var; }, rows([](const Reals& v) {
       return variance(v) * 6 / 7;
     })},
};
WEFT_TEST_COMPOSITES(Reduction, kTable);

Tensor of(const std::vector<double>& v, const Shape& shape) { return Tensor::from_vector<double>(v, shape); }

TEST(Reduction, ExtremesAlongADimHaveTheirIndices) {
  const Tensor x = of({1, 5, 5, 3, kNan, 9}, {2, 3});
  ValuesIndices m = max(x, 1);
  expect_values(m.values, {5, kNan});
  expect_values(m.indices, {1, 1});
  m = min(x, -1, true);
  EXPECT_EQ(m.values.shape(), (Shape{2, 1}));
  expect_values(m.indices, {0, 1});
  expect_values(max(of({4}, {}), 0).values, {4});
  EXPECT_EQ(max(x.to(kInt64), int64_t{0}).values.dtype(), kInt64);
  const Tensor flags = Tensor::from_vector<bool>({true, false, false, false}, {2, 2});
  expect_values(max(flags, 1).values, {1, 0});
  expect_values(max(flags), {1});
  EXPECT_EQ(min(flags).dtype(), kBool);
  EXPECT_EQ(max(zeros({0, 3}), 1).values.shape(), (Shape{0}));
  Tensor t = of({2, 2, 1}, {3}).requires_grad();
  expect_values(grad(max(t, 0).values, {t})[0], {1, 0, 0});
  expect_values(grad(max(t), {t})[0], {0.5, 0.5, 0});
}

TEST(Reduction, NanAndCounts) {
  const Tensor x = of({1, kNan, 0, kNan, kNan, kNan}, {2, 3});
  expect_values(nansum(x, 1), {1, 0});
  expect_values(nanmean(x, 1), {0.5, kNan});
  expect_values(count_nonzero(x), {5});
  expect_values(count_nonzero(x, 0), {2, 2, 1});
  EXPECT_EQ(count_nonzero(x).dtype(), kInt64);
  EXPECT_EQ(nansum(ones({3}, {.dtype = kInt32})).dtype(), kInt64);
  expect_values(nansum(zeros({0})), {0});
  Tensor t = of({1, kNan, 3}, {3}).requires_grad();
  expect_values(grad(nanmean(t), {t})[0], {0.5, 0, 0.5});
}

TEST(Reduction, CloseAndEqual) {
  const double inf = std::numeric_limits<double>::infinity();
  const Tensor a = of({1, 1, inf, kNan, inf, 0}, {6}), b = of({1 + 1e-6, 1.1, inf, kNan, -inf, 1e-9}, {6});
  expect_values(isclose(a, b), {1, 0, 1, 0, 0, 1});
  expect_values(isclose(a, b, 1e-5, 1e-8, true), {1, 0, 1, 1, 0, 1});
  expect_values(isclose(Tensor::from_vector<int64_t>({5, INT64_MAX}, {2}),
                        Tensor::from_vector<int64_t>({6, INT64_MAX - 1}, {2}), 0, 0),
                {0, 0});
  EXPECT_TRUE(allclose(a.slice(0, 0, 1), 1.0));
  EXPECT_FALSE(allclose(a, b));
  EXPECT_TRUE(allclose(zeros({0}), zeros({0})));
  EXPECT_TRUE(equal(a.slice(0, 0, 3), a.slice(0, 0, 3)));
  EXPECT_FALSE(equal(a, a));  // NaN
  EXPECT_FALSE(equal(ones({2}), ones({2, 1})));
  auto step = compile([](Tensor x) { return equal(x, x) ? x : -x; });
  expect_error([&] { step(a); }, "equal");
}

TEST(ReductionErrors, NameTheFunction) {
  EXPECT_EQ(error_of([] { max(zeros({0, 2})); }), "max: x is f32[0, 2]; need one element or more");
  EXPECT_EQ(error_of([] { min(zeros({0, 2}), 0); }), "min: dim 0 of [0, 2] is empty; need one element or more");
  EXPECT_EQ(error_of([] { aminmax(zeros({0, 2}), 0); }), "aminmax: dim 0 of [0, 2] is empty; need one element or more");
  EXPECT_EQ(error_of([] { nanmean(zeros({2}, {.dtype = kInt64})); }),
            "nanmean: operand is i64[2]; need a floating-point dtype");
  EXPECT_EQ(error_of([] { isclose(zeros({2}), zeros({2}), -1); }),
            "isclose: rtol is -1 and atol 1e-08; need 0 or more");
  expect_error([] { max(zeros({2}), 3); }, "max: dim 3 is out of range");
}

}  // namespace
}  // namespace weft::testing

// Code outside weft that sees both std::max and weft::max: each is used for its types.
namespace outside {
namespace {

using namespace std;
using namespace weft;

TEST(Reduction, MaxOfTensorsIsNotThatOfTheStandardLibrary) {
  const Tensor a = Tensor::from_vector<float>({1, 4}, {2}), b = Tensor::from_vector<float>({3, 2}, {2});
  EXPECT_EQ(max(a, b).to_vector<float>(), (vector<float>{3, 4}));
  EXPECT_EQ(min(a, b).to_vector<float>(), (vector<float>{1, 2}));
  EXPECT_EQ(max(a, 2.5).to_vector<float>(), (vector<float>{2.5, 4}));
  EXPECT_EQ(max(2.5, a).to_vector<float>(), (vector<float>{2.5, 4}));
  EXPECT_EQ(max(a, 0).values.item<float>(), 4);
  EXPECT_EQ(max(1, 2), 2);
  EXPECT_EQ(max(1.5, 2.5), 2.5);
  EXPECT_EQ(min<int64_t>(1, 2), 1);
}

}  // namespace
}  // namespace outside
