#include "ops/composite/random/sampling.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "compiler/exec/compile.h"
#include "framework/dispatch/state/generator.h"
#include "framework/testing/compare.h"
#include "ops/core/core.h"

namespace weft::testing {
namespace {

using D = std::vector<double>;
using I = std::vector<int64_t>;

Tensor of(const D& v) { return Tensor::from_vector(v, Shape(v.size())); }
I values(const Tensor& x) { return x.to_vector<int64_t>(); }

TEST(Sampling, Permutations) {
  manual_seed(1);
  I p = values(randperm(1000));
  EXPECT_FALSE(std::is_sorted(p.begin(), p.end()));
  I again = values(randperm(1000));
  EXPECT_NE(p, again);
  std::sort(p.begin(), p.end());
  for (int64_t i = 0; i < 1000; ++i) EXPECT_EQ(p[static_cast<size_t>(i)], i);
  EXPECT_EQ(randperm(0).shape(), Shape({0}));
  EXPECT_EQ(randperm(3, {.dtype = kInt32}).dtype(), kInt32);
  EXPECT_EQ(error_of([] { randperm(-1); }), "randperm: n is -1; need 0 or more");
  // Each of the 6 orders of 3 has the frequency 1/6: within 5 standard deviations.
  std::map<I, int> seen;
  constexpr int kDraws = 1200;
  for (int i = 0; i < kDraws; ++i) ++seen[values(randperm(3))];
  EXPECT_EQ(seen.size(), 6u);
  for (auto& [order, count] : seen) EXPECT_NEAR(count, kDraws / 6.0, 5 * std::sqrt(kDraws * 5 / 36.0));
  auto compiled = compile([](Tensor x) { return index_select(x, 0, randperm(5)); });
  I shuffled = values(compiled(arange(5)));
  std::sort(shuffled.begin(), shuffled.end());
  EXPECT_EQ(shuffled, (I{0, 1, 2, 3, 4}));
}

TEST(Sampling, Exponentials) {
  manual_seed(2);
  const D x = exponential({20000}, 2, {.dtype = kFloat64}).to_vector<double>();
  double mean = 0;
  int above = 0;
  for (double v : x) {
    EXPECT_GT(v, 0);
    mean += v / 20000;
    above += v > 0.5 * std::log(2.0);
  }
  EXPECT_NEAR(mean, 0.5, 5 * 0.5 / std::sqrt(20000));
  EXPECT_NEAR(above, 10000, 5 * std::sqrt(5000));
  EXPECT_EQ(error_of([] { exponential({2}, 0); }), "exponential: rate is 0; need a positive number");
}

TEST(Sampling, DrawsHaveTheirProbabilities) {
  manual_seed(3);
  constexpr int64_t kDraws = 20000;
  const D p = {1, 0, 3, 4, 0};
  const I n = values(histogram(multinomial(of(p), kDraws, true), 5));
  for (size_t i = 0; i < p.size(); ++i)
    EXPECT_NEAR(n[i], kDraws * p[i] / 8, 5 * std::sqrt(kDraws * p[i] / 8 * (1 - p[i] / 8))) << i;
  const Tensor rows = expand(of(p), {kDraws, 5});
  const I first = values(histogram(select(multinomial(rows, 2), 1, 0), 5));
  for (size_t i = 0; i < p.size(); ++i)
    EXPECT_NEAR(first[i], kDraws * p[i] / 8, 5 * std::sqrt(kDraws * p[i] / 8 * (1 - p[i] / 8))) << i;
}

TEST(Sampling, WithoutReplacementNothingIsDrawnTwice) {
  manual_seed(4);
  const Tensor y = multinomial(rand({50, 9}), 9);
  EXPECT_EQ(y.type(), (TensorType{kInt64, Device::cpu(), {50, 9}}));
  for (int64_t i = 0; i < 50; ++i) {
    const I row = values(select(y, 0, i));
    EXPECT_EQ(std::set<int64_t>(row.begin(), row.end()).size(), 9u);
  }
  for (int i = 0; i < 20; ++i) {
    const I row = values(multinomial(of({0, 1e-30, 0, 1}), 2));
    EXPECT_EQ((std::set<int64_t>(row.begin(), row.end())), (std::set<int64_t>{1, 3}));
  }
  EXPECT_EQ(multinomial(of({1, 2}), 0).shape(), Shape({0}));
  EXPECT_EQ(multinomial(ones({3, 2}, {.dtype = kBFloat16}), 5, true).shape(), Shape({3, 5}));
}

TEST(Sampling, WrongWeights) {
  const std::string text = "multinomial: a weight is negative or not finite, or fewer than 1 of a row are positive";
  for (const D& w : {D{1, -1}, D{1, NAN}, D{1, INFINITY}, D{0, 0}})
    for (bool replacement : {true, false}) expect_error([&] { multinomial(of(w), 1, replacement); }, text);
  auto step = compile([](Tensor w) { return multinomial(w, 1, true); });
  EXPECT_EQ(values(step(of({0, 1}))), (I{1}));
  for (const D& w : {D{0, 0}, D{1, -1}, D{1, NAN}})
    EXPECT_EQ(error_of([&] { step(of(w)); }), text + "; need that many");
  expect_error([&] { multinomial(of({1, 0}), 2); }, "fewer than 2 of a row are positive");
  EXPECT_EQ(error_of([&] {
              multinomial(of({1, 0}), 3);
            }),
            "multinomial: 3 samples of 2 categories; need 0 to 2 without replacement");
  EXPECT_EQ(error_of([] { multinomial(zeros({0}), 1, true); }),
            "multinomial: weights are f32[0]; need one category or more");
}

}  // namespace
}  // namespace weft::testing
