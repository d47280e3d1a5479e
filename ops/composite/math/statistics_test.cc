#include "ops/composite/math/statistics.h"

#include <algorithm>
#include <cmath>

#include "compiler/exec/compile.h"
#include "framework/autodiff/grad.h"
#include "framework/testing/gradcheck.h"
#include "ops/composite/testing/composite_table.h"
#include "ops/core/core.h"

namespace weft::testing {
namespace {

using D = std::vector<double>;
using I = std::vector<int64_t>;
using Args = std::span<const Tensor>;

Tensor ints(const I& v) { return Tensor::from_vector(v, Shape(v.size())); }
Tensor of(const D& v) { return Tensor::from_vector(v, Shape(v.size())); }
I values(const Tensor& x) { return x.to_vector<int64_t>(); }
D reals(const Tensor& x) { return x.to_vector<double>(); }

constexpr int64_t kRows = 4, kColumns = 7;
template <class F>
auto rows(const F& f) {
  return [f](const std::vector<Reals>& in) {
    Reals r;
    for (int64_t i = 0; i < kRows; ++i) {
      Reals row = row_of(in[0], i, kColumns);
      std::sort(row.begin(), row.end());
      r.push_back(f(row));
    }
    return r;
  };
}
Real between(const Reals& sorted, Real q) {
  const Real at = q * static_cast<Real>(sorted.size() - 1);
  const auto low = static_cast<size_t>(at);
  return low + 1 == sorted.size() ? sorted[low] : sorted[low] + (at - low) * (sorted[low + 1] - sorted[low]);
}
Real covariance(const Reals& x, int64_t i, int64_t j) {
  Real a = 0, b = 0, s = 0;
  for (int64_t k = 0; k < kColumns; ++k) a += x[i * kColumns + k] / kColumns, b += x[j * kColumns + k] / kColumns;
  for (int64_t k = 0; k < kColumns; ++k) s += (x[i * kColumns + k] - a) * (x[j * kColumns + k] - b);
  return s / (kColumns - 1);
}

const Operand kX{Shape{kRows, kColumns}};
const std::vector<CompositeRow> kTable = {
    {"median", {kX}, [](Args a) { return median(a[0], 1).values; }, rows([](const Reals& r) { return r[3]; })},
    {"kthvalue", {kX}, [](Args a) { return kthvalue(a[0], 2).values; }, rows([](const Reals& r) { return r[1]; })},
    {"quantile", {kX}, [](Args a) { return quantile(a[0], 0.3, 1); }, rows([](const Reals& r) {
       return between(r, 0.3L);
     })},
    {"quantile_high", {kX}, [](Args a) { return quantile(a[0], 0.3, 1, false, "higher"); }, rows([](const Reals& r) {
       return r[2];
     })},
    {"cov",
     {kX},
     [](Args a) { return cov(a[0]); },
     [](const std::vector<Reals>& in) {
       Reals r;
       for (int64_t i = 0; i < kRows; ++i)
         for (int64_t j = 0; j < kRows; ++j) r.push_back(covariance(in[0], i, j));
       return r;
     },
     64},
    {"corrcoef",
     {kX},
     [](Args a) { return corrcoef(a[0]); },
     [](const std::vector<Reals>& in) {
       Reals r;
       for (int64_t i = 0; i < kRows; ++i)
         for (int64_t j = 0; j < kRows; ++j)
           r.push_back(covariance(in[0], i, j) / std::sqrt(covariance(in[0], i, i) * covariance(in[0], j, j)));
       return r;
     },
     64},
};
WEFT_TEST_COMPOSITES(Statistics, kTable);

TEST(Statistics, Medians) {
  const Tensor x = reshape(of({5, 1, 4, 2, 9, 8, 7, 6}), {2, 4});
  const ValuesIndices m = median(x, -1);
  EXPECT_EQ(reals(m.values), (D{2, 7}));  // the lower of two
  EXPECT_EQ(values(m.indices), (I{3, 2}));
  EXPECT_EQ(median(x, 0, true).values.shape(), Shape({1, 4}));
  EXPECT_EQ(median(x).item<double>(), 5);
  EXPECT_EQ(median(ints({3, 1, 2})).item<int64_t>(), 2);
  EXPECT_EQ(median(select(of({7}), 0, 0)).item<double>(), 7);
  const Tensor n = of({NAN, 3, NAN, 1, 2, 4});
  EXPECT_TRUE(std::isnan(median(n).item<double>()));
  EXPECT_EQ(values(median(n, 0).indices), (I{0}));  // the first NaN
  EXPECT_EQ(nanmedian(n).item<double>(), 2);
  EXPECT_EQ(nanmedian(n, 0).indices.item<int64_t>(), 4);
  EXPECT_TRUE(std::isnan(nanmedian(of({NAN, NAN})).item<double>()));
  EXPECT_EQ(error_of([] { median(zeros({0})); }), "median: dim 0 of [0] has no elements; need one or more");
}

TEST(Statistics, KthAndMode) {
  const Tensor x = ints({4, 2, 2, 7, 4, 1});
  EXPECT_EQ(kthvalue(x, 5).values.item<int64_t>(), 4);
  EXPECT_EQ(kthvalue(x, 5).indices.item<int64_t>(), 4);
  EXPECT_EQ(kthvalue(x, 1, 0, true).values.shape(), Shape({1}));
  EXPECT_EQ(error_of([&] { kthvalue(x, 0); }), "kthvalue: k is 0 of dim 0 of [6]; need 1 to 6");
  EXPECT_EQ(mode(x).values.item<int64_t>(), 2);
  EXPECT_EQ(mode(x).indices.item<int64_t>(), 2);
  const ValuesIndices m = mode(reshape(ints({1, 5, 1, 5, 2, 5}), {3, 2}), 0);
  EXPECT_EQ(values(m.values), (I{1, 5}));
  EXPECT_EQ(values(m.indices), (I{1, 2}));
  EXPECT_EQ(mode(ints({8})).values.item<int64_t>(), 8);
  EXPECT_EQ(mode(reshape(ints({3, 3, 1, 9, 9, 9}), {2, 3}), 1, true).values.shape(), Shape({2, 1}));
  EXPECT_EQ(values(mode(reshape(ints({3, 3, 1, 9, 9, 9}), {2, 3}), 1).values), (I{3, 9}));
  EXPECT_EQ(values(msort(reshape(ints({3, 1, 2, 4}), {2, 2}))), (I{2, 1, 3, 4}));
}

TEST(Statistics, Quantiles) {
  const Tensor x = of({4, 1, 3, 2});
  EXPECT_EQ(quantile(x, 0.5).item<double>(), 2.5);
  EXPECT_EQ(quantile(x, 0).item<double>(), 1);
  EXPECT_EQ(quantile(x, 1).item<double>(), 4);
  EXPECT_EQ(reals(quantile(x, of({0, 0.25, 1}))), (D{1, 1.75, 4}));
  EXPECT_EQ(quantile(x, 0.5, 0, true).shape(), Shape({1}));
  EXPECT_EQ(quantile(x, of({0.5, 0.1}), {}, true).shape(), Shape({2, 1}));
  EXPECT_EQ(quantile(ones({2, 3, 4}), of({0.5, 0.1}), 1).shape(), Shape({2, 2, 4}));
  EXPECT_EQ(quantile(ones({2, 3, 4}), of({0.5, 0.1}), 1, true).shape(), Shape({2, 2, 1, 4}));
  EXPECT_EQ(quantile(ones({2, 3}), 0.5, 1, true).shape(), Shape({2, 1}));
  const D want = {1, 2, 1.5, 1};
  const char* how[] = {"lower", "higher", "midpoint", "nearest"};
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(quantile(x, 0.1, {}, false, how[i]).item<double>(), want[i]) << how[i];
  EXPECT_EQ(quantile(x, 1.0 / 3, {}, false, "nearest").item<double>(), 2);
  EXPECT_TRUE(std::isnan(quantile(of({1, NAN, 2}), 0.0).item<double>()));
  EXPECT_EQ(quantile(of({-INFINITY, -INFINITY, 1}), 0.25).item<double>(), -INFINITY);
  EXPECT_EQ(reals(compile([](Tensor a, Tensor q) { return quantile(a, q); })(x, of({0.5, 1}))), (D{2.5, 4}));
  EXPECT_EQ(error_of([&] { quantile(x, 1.5); }), "quantile: q is 1.5; need a number from 0 to 1");
  for (double bad : {1.01, -0.01, -1e-300, double{NAN}})
    for (const char* in : {"linear", "higher"}) {
      const auto f = [&](Tensor q) { return quantile(x, q, {}, false, in); };
      const std::string text = "quantile: a q is not in [0, 1]; need numbers from 0 to 1";
      EXPECT_EQ(error_of([&] { f(of({0.5, bad})); }), text) << bad;
      EXPECT_EQ(error_of([&] { compile(f)(of({0.5, bad})); }), text) << bad;
      for (const std::function<void()>& call :
           {std::function<void()>([&] { f(of({bad})); }), std::function<void()>([&] { compile(f)(of({bad})); })})
        EXPECT_NE(placed_error_of(call, Code::kInvalidArgument).find("; at ops/composite/math/statistics_test.cc:"),
                  std::string::npos);
    }
  EXPECT_THROW(quantile(zeros({0}), 0.5), Error);
  expect_error([&] { quantile(x, 0.5, 0, false, "cubic"); }, "quantile: interpolation is 'cubic'");
}

TEST(Statistics, Histograms) {
  EXPECT_EQ(reals(histc(of({0, 0.5, 1, 1.5, 2, 9, -1, NAN}), 4, 0, 2)), (D{1, 1, 1, 2}));
  EXPECT_EQ(reals(histc(of({1, 2, 3, 5}), 2)), (D{2, 2}));
  EXPECT_EQ(reals(histc(of({3, 3}), 2)), (D{0, 2}));  // the range 2 to 4
  EXPECT_EQ(reals(histc(of({}), 2)), (D{0, 0}));
  EXPECT_EQ(histc(ones({2, 2}), 3).dtype(), kFloat32);
  EXPECT_EQ(error_of([] {
              histc(of({1, INFINITY}), 2);
            }),
            "histc: x has values from 1 to inf; need finite ones, or a range");
  auto counted = compile([](Tensor a) { return histc(a, 2); });
  EXPECT_EQ(reals(counted(of({1, 5, 2}))), (D{2, 1}));
  for (double bad : {double{INFINITY}, double{NAN}})
    EXPECT_EQ(error_of([&] {
                counted(of({1, bad, 2}));
              }),
              "histc: x has values that are not finite; need finite ones, or a range");
  EXPECT_EQ(reals(counted(of({3, 3, 3}))), (D{0, 3}));
  EXPECT_EQ(reals(histc(of({1, INFINITY}), 2, 0, 4)), (D{1, 0}));
  EXPECT_EQ(error_of([] { histc(of({1}), 0); }), "histc: 0 bins; need 1 or more");
  expect_error([] { histc(of({1}), INT64_MAX); }, "histc: shape [9223372036854775807] has too many elements");
  EXPECT_EQ(error_of([] { histc(of({1}), 2, 3, 1); }), "histc: range 3 to 1; need finite numbers, the smaller first");
}

TEST(Statistics, CovarianceWithWeights) {
  const Tensor x = reshape(of({1, 2, 4, 3, 1, 5}), {2, 3});
  // Observation 1 twice.
  const Tensor twice = reshape(of({1, 2, 2, 4, 3, 1, 1, 5}), {2, 4});
  const D want = reals(cov(twice)), got = reals(cov(x, {.fweights = ints({1, 2, 1})}));
  for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(got[i], want[i], 1e-14);
  // Weights a: sum of a (x - m)^2 / (sum of a - sum of a^2 / sum of a).
  const double m = (0.5 * 1 + 1 * 2 + 2 * 4) / 3.5;
  const double s = 0.5 * (1 - m) * (1 - m) + (2 - m) * (2 - m) + 2 * (4 - m) * (4 - m);
  EXPECT_NEAR(cov(select(x, 0, 0), {.aweights = of({0.5, 1, 2})}).item<double>(), s / (3.5 - 5.25 / 3.5), 1e-14);
  EXPECT_NEAR(cov(select(x, 0, 0), {.correction = 0}).item<double>(), 14.0 / 9, 1e-14);
  EXPECT_EQ(corrcoef(select(x, 0, 0)).item<double>(), 1);
  EXPECT_EQ(error_of([&] { cov(x, {.fweights = ones(3)}); }), "cov: fweights are f32[3]; need integers of shape [3]");
  EXPECT_EQ(error_of([&] { cov(x, {.fweights = ints({1, -2, 1})}); }), "cov: one of fweights is -2; need 0 or more");
  EXPECT_EQ(error_of([&] { cov(x, {.aweights = of({1, -0.5, 1})}); }), "cov: one of aweights is -0.5; need 0 or more");
  EXPECT_EQ(error_of([] { cov(ints({1})); }), "cov: operand is i64[1]; need a floating-point dtype");
}

}  // namespace
}  // namespace weft::testing
