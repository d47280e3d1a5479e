#include "ops/composite/images/grid.h"

#include <cmath>

#include "framework/testing/compare.h"
#include "ops/core/core.h"

namespace weft::testing {
namespace {

using D = std::vector<double>;
using I = std::vector<int64_t>;

Tensor ints(const I& v) { return Tensor::from_vector(v, {static_cast<int64_t>(v.size())}); }

TEST(Grid, SpacedNumbersIncludeBothEnds) {
  EXPECT_EQ(linspace(0, 1, 5).to_vector<double>(), (D{0, 0.25, 0.5, 0.75, 1}));
  EXPECT_EQ(linspace(3, -3, 4, {.dtype = kFloat64}).to_vector<double>(), (D{3, 1, -1, -3}));
  EXPECT_EQ(linspace(0, 10, 5, {.dtype = kInt64}).to_vector<int64_t>(), (I{0, 2, 5, 7, 10}));
  EXPECT_EQ(linspace(2, 9, 1).to_vector<double>(), (D{2}));
  EXPECT_EQ(linspace(2, 9, 0).shape(), Shape({0}));
  const Tensor many = linspace(0.1, 0.7, 1001, {.dtype = kFloat64});
  EXPECT_EQ(select(many, 0, -1).item<double>(), 0.7);
  for (int64_t i : {1, 500, 999}) EXPECT_NEAR(select(many, 0, i).item<double>(), 0.1 + 0.6 * double(i) / 1000, 2e-16);
  EXPECT_EQ(linspace(-1.5e308, 1.5e308, 3, {.dtype = kFloat64}).to_vector<double>(), (D{-1.5e308, 0, 1.5e308}));
  const D powers = logspace(-2, 2, 5, 10, {.dtype = kFloat64}).to_vector<double>();
  for (int i = 0; i < 5; ++i) EXPECT_NEAR(powers[i], std::pow(10, i - 2), 1e-12 * std::pow(10, i - 2));
  EXPECT_EQ(logspace(0, 3, 4, 2).to_vector<double>(), (D{1, 2, 4, 8}));
  EXPECT_EQ(error_of([] { linspace(0, 1, -1); }), "linspace: -1 steps; need 0 or more");
  EXPECT_EQ(error_of([] { linspace(0, INFINITY, 3); }), "linspace: from 0 to inf; need finite numbers");
}

TEST(Grid, TriangleIndices) {
  EXPECT_EQ(tril_indices(3, 3).to_vector<int64_t>(), (I{0, 1, 1, 2, 2, 2, 0, 0, 1, 0, 1, 2}));
  EXPECT_EQ(triu_indices(2, 3, 1).to_vector<int64_t>(), (I{0, 0, 1, 1, 2, 2}));
  EXPECT_EQ(tril_indices(2, 3, -5).shape(), Shape({2, 0}));
  EXPECT_EQ(triu_indices(0, 3).shape(), Shape({2, 0}));
  for (int64_t k = -4; k <= 4; ++k) {
    const int64_t n = sum(cast(tril(ones({4, 3}), k), kInt64)).item<int64_t>();
    EXPECT_EQ(tril_indices(4, 3, k).size(1), n);
    EXPECT_EQ(triu_indices(4, 3, k + 1).size(1), 12 - n);
  }
}

TEST(Grid, PointsAndChoices) {
  const std::vector<Tensor> g = meshgrid({ints({1, 2, 3}), ints({4, 5})});
  EXPECT_EQ(g[0].to_vector<int64_t>(), (I{1, 1, 2, 2, 3, 3}));
  EXPECT_EQ(g[1].to_vector<int64_t>(), (I{4, 5, 4, 5, 4, 5}));
  const std::vector<Tensor> xy = meshgrid({ints({1, 2, 3}), ints({4, 5})}, "xy");
  EXPECT_EQ(xy[0].shape(), Shape({2, 3}));
  EXPECT_EQ(xy[0].to_vector<int64_t>(), (I{1, 2, 3, 1, 2, 3}));
  EXPECT_EQ(cartesian_prod({ints({1, 2}), ints({3, 4})}).to_vector<int64_t>(), (I{1, 3, 1, 4, 2, 3, 2, 4}));
  EXPECT_EQ(cartesian_prod({ints({1, 2})}).shape(), Shape({2}));
  EXPECT_EQ(combinations(ints({1, 2, 3})).to_vector<int64_t>(), (I{1, 2, 1, 3, 2, 3}));
  EXPECT_EQ(combinations(ints({1, 2}), 2, true).to_vector<int64_t>(), (I{1, 1, 1, 2, 2, 2}));
  EXPECT_EQ(combinations(ints({1, 2, 3, 4}), 3).to_vector<int64_t>(), (I{1, 2, 3, 1, 2, 4, 1, 3, 4, 2, 3, 4}));
  EXPECT_EQ(combinations(ints({1, 2, 3}), 3, true).shape(), Shape({10, 3}));
  EXPECT_EQ(combinations(ints({1, 2}), 3).shape(), Shape({0, 3}));
  EXPECT_EQ(combinations(ints({}), 2, true).shape(), Shape({0, 2}));
  EXPECT_EQ(combinations(ints({5, 6}), 1).to_vector<int64_t>(), (I{5, 6}));
  EXPECT_EQ(combinations(arange(20), 10).shape(), Shape({184756, 10}));
  EXPECT_EQ(error_of([] { combinations(arange(60), 30); }),
            "combinations: shape [118264581564861424, 30] has too many elements; need fewer than 2^58");
  expect_error([] { combinations(arange(100), 50); }, "combinations: shape [9223372036854775807, 50] has too many");
  expect_error([] { combinations(arange(2), INT64_MAX, true); }, "has too many elements");
  EXPECT_EQ(error_of([] { meshgrid({zeros(2)}, "ji"); }), "meshgrid: indexing is 'ji'; need \"ij\" or \"xy\"");
  EXPECT_EQ(error_of([] { meshgrid({}); }), "meshgrid: no tensors; need one or more");
}

}  // namespace
}  // namespace weft::testing
