#include "ops/composite/search.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "compiler/exec/compile.h"
#include "framework/autodiff/grad.h"
#include "framework/testing/values.h"
#include "ops/core/core.h"

namespace weft::testing {
namespace {

using D = std::vector<double>;
using I = std::vector<int64_t>;

Tensor ints(const I& v) { return Tensor::from_vector(v, Shape(v.size())); }
Tensor of(const D& v) { return Tensor::from_vector(v, Shape(v.size())); }
I values(const Tensor& x) { return x.to_vector<int64_t>(); }

TEST(Search, PlacesAreThoseOfTheStandardLibrary) {
  Random random(5);
  for (int64_t n : {0, 1, 2, 3, 7, 8, 9, 100}) {
    I s;
    for (int64_t i = 0; i < n; ++i) s.push_back(static_cast<int64_t>(random.between(0, 30, true)));
    std::sort(s.begin(), s.end());
    I v, left, right;
    for (int64_t i = -1; i < 32; ++i) {
      v.push_back(i);
      left.push_back(std::lower_bound(s.begin(), s.end(), i) - s.begin());
      right.push_back(std::upper_bound(s.begin(), s.end(), i) - s.begin());
    }
    EXPECT_EQ(values(searchsorted(ints(s), ints(v))), left) << n;
    EXPECT_EQ(values(bucketize(ints(v), ints(s), {.right = true})), right) << n;
    EXPECT_EQ(values(searchsorted(cast(ints(s), kFloat32), reshape(ints(v), {3, 11}))), left);
  }
}

TEST(Search, RowsNumbersAndNan) {
  const Tensor rows = reshape(of({1, 3, 5, 7, 2, 4, 6, 8}), {2, 4});
  EXPECT_EQ(values(searchsorted(rows, reshape(of({3, 6, 3, 6}), {2, 2}))), (I{1, 3, 1, 2}));
  const Tensor at = searchsorted(of({0.1, 0.2}), 0.2, {.out_int32 = true});
  EXPECT_EQ(at.type(), (TensorType{kInt32, Device::cpu(), {}}));
  EXPECT_EQ(at.item<int>(), 1);
  EXPECT_EQ(searchsorted(of({0.1, 0.2}).to(kFloat32), 0.1, {.right = true}).item<int>(), 1);
  EXPECT_EQ(searchsorted(ints({1, 2}), 1.5).item<int>(), 1);
  EXPECT_EQ(values(searchsorted(of({1, INFINITY, NAN, NAN}), of({NAN, INFINITY}))), (I{2, 1}));
  EXPECT_EQ(values(searchsorted(of({1, INFINITY, NAN, NAN}), of({NAN, INFINITY}), {.right = true})), (I{4, 2}));
  EXPECT_EQ(values(compile([&](Tensor x) { return bucketize(x, of({1, 3})); })(of({0, 1, 2, 9}))), (I{0, 0, 1, 2}));
  EXPECT_EQ(error_of([&] {
              searchsorted(rows, of({1, 2}));
            }),
            "searchsorted: sorted numbers f64[2, 4] and values f64[2]; need one dim, or equal dims before the last");
  EXPECT_EQ(error_of([&] { bucketize(of({1}), rows); }), "bucketize: boundaries are f64[2, 4]; need one dim");
}

TEST(Search, Isin) {
  const Tensor x = reshape(ints({1, 2, 3, 4}), {2, 2});
  EXPECT_EQ(values(isin(x, ints({4, 2, 9}))), (I{0, 1, 0, 1}));
  EXPECT_EQ(values(isin(x, ints({4, 2, 9}), true)), (I{1, 0, 1, 0}));
  EXPECT_EQ(values(isin(x, 3)), (I{0, 0, 1, 0}));
  EXPECT_EQ(isin(2, x).item<bool>(), true);
  EXPECT_EQ(values(isin(x, ints({}))), (I{0, 0, 0, 0}));
  EXPECT_EQ(values(isin(of({NAN, 1}), of({NAN, 1}))), (I{0, 1}));
  EXPECT_EQ(isin(x, ints({1})).dtype(), kBool);
  EXPECT_EQ(values(compile([](Tensor a, Tensor b) { return isin(a, b); })(x, ints({4}))), (I{0, 0, 0, 1}));
}

TEST(Search, Unique) {
  const Tensor x = reshape(ints({3, 1, 3, 2, 1, 3}), {2, 3});
  const Unique u = unique(x);
  EXPECT_EQ(values(u.values), (I{1, 2, 3}));
  EXPECT_EQ(values(u.inverse), (I{2, 0, 2, 1, 0, 2}));
  EXPECT_EQ(u.inverse.shape(), x.shape());
  EXPECT_EQ(values(u.counts), (I{2, 1, 3}));
  EXPECT_EQ(unique(of({})).values.shape(), Shape({0}));
  EXPECT_EQ(unique(of({})).counts.shape(), Shape({0}));
  EXPECT_EQ(values(unique(x > 1).values), (I{0, 1}));
  EXPECT_EQ(values(unique(select(x.view(6), 0, 0)).values), (I{3}));
  EXPECT_EQ(unique(of({NAN, 1, NAN})).values.size(0), 3);  // NaN equals nothing
  const Unique c = unique_consecutive(ints({1, 1, 2, 1, 1, 1}));
  EXPECT_EQ(values(c.values), (I{1, 2, 1}));
  EXPECT_EQ(values(c.inverse), (I{0, 0, 1, 2, 2, 2}));
  EXPECT_EQ(values(c.counts), (I{2, 1, 3}));
  Random random(9);
  const Tensor many = random_tensor(kInt32, {500}, random, 0, 60);
  std::map<int64_t, int64_t> counts;
  for (int64_t v : values(many)) ++counts[v];
  const Unique m = unique(many);
  I keys, numbers;
  for (auto [k, n] : counts) keys.push_back(k), numbers.push_back(n);
  EXPECT_EQ(values(m.values), keys);
  EXPECT_EQ(values(m.counts), numbers);
  EXPECT_EQ(values(index_select(m.values, 0, m.inverse)), values(many));
  const Unique rows = unique(of({1, NAN, 1, 0, 1, NAN, 1, 0}).view({4, 2}), 0);  // NaN after all numbers
  EXPECT_EQ(rows.values.shape(), Shape({3, 2}));
  EXPECT_EQ(values(rows.inverse), (I{1, 0, 2, 0}));
  EXPECT_EQ(unique(zeros({0, 3}), 0).values.shape(), Shape({0, 3}));
  EXPECT_EQ(values(unique(ints({INT64_MAX, INT64_MAX - 1}), 0).values), (I{INT64_MAX - 1, INT64_MAX}));
  expect_error([&] { compile([](Tensor a) { return unique(a, 0).values; })(x); },
               "unique: the shape of the result depends on the values of i64[2, 3]");
  expect_error([&] { compile([](Tensor a) { return one_hot(a); })(x); }, "need the number of classes: one_hot(x, cl");
  EXPECT_EQ(error_of([] { one_hot(ints({1, -1})); }), "one_hot: x has -1; need 0 or more");
  expect_error([&] { compile([](Tensor a) { return unique(a).values; })(x); },
               "unique: the shape of the result depends on the values of i64[2, 3]");
}

TEST(Search, Bincount) {
  EXPECT_EQ(values(bincount(ints({1, 3, 1}))), (I{0, 2, 0, 1}));
  EXPECT_EQ(values(bincount(ints({1}), {}, 4)), (I{0, 1, 0, 0}));
  EXPECT_EQ(bincount(ints({})).shape(), Shape({0}));
  EXPECT_EQ(bincount(ints({0, 2, 2}), of({0.5, 1, 2})).to_vector<double>(), (D{0.5, 0, 3}));
  EXPECT_EQ(bincount(ints({0}), ones(1)).dtype(), kFloat32);
  EXPECT_EQ(error_of([] { bincount(ints({2, -1})); }), "bincount: x has -1; need 0 or more");
  EXPECT_EQ(error_of([] { bincount(ones(2)); }), "bincount: got f32[2]; need integers in one dim");
  EXPECT_EQ(error_of([] {
              bincount(ints({1, 2}), ones(3));
            }),
            "bincount: weights are f32[3] for x [2]; need x's shape");
  EXPECT_THROW(bincount(ints({int64_t{1} << 62})), Error);
  expect_error([] { compile([](Tensor a) { return bincount(a); })(ints({1})); }, "need histogram(x, bins)");
}

}  // namespace
}  // namespace weft::testing
