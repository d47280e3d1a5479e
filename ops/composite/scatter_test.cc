#include "ops/composite/scatter.h"

#include <cmath>

#include "compiler/exec/compile.h"
#include "framework/autodiff/grad.h"
#include "framework/testing/gradcheck.h"
#include "ops/composite/images/pool.h"
#include "ops/composite/indexing.h"
#include "ops/composite/testing/composite_table.h"
#include "ops/core/core.h"

namespace weft::testing {
namespace {

using D = std::vector<double>;
using I = std::vector<int64_t>;
using Args = std::span<const Tensor>;

Tensor ints(const I& v, const Shape& shape) { return Tensor::from_vector(v, shape); }
Tensor of(const D& v) { return Tensor::from_vector(v, Shape(static_cast<int64_t>(v.size()))); }
I values(const Tensor& x) { return x.to_vector<int64_t>(); }

// x [3, 4], index [3, 5] and src [3, 5] along dim 1: the values of each element.
constexpr int64_t kColumns = 4, kWrites = 5;
const I kAt = {0, 2, 2, 0, 2, 3, 3, 3, 3, 3, 1, 0, 1, 1, 2};
template <class F>
auto each(const F& f) {
  return [f](const std::vector<Reals>& in) {
    Reals r = in[0];
    for (int64_t row = 0; row < 3; ++row)
      for (int64_t c = 0; c < kColumns; ++c) {
        Reals v;
        for (int64_t k = 0; k < kWrites; ++k)
          if (kAt[static_cast<size_t>(row * kWrites + k)] == c)
            v.push_back(in[1][static_cast<size_t>(row * kWrites + k)]);
        Real& x = r[static_cast<size_t>(row * kColumns + c)];
        if (!v.empty()) x = f(x, v);
      }
    return r;
  };
}
Real total(const Reals& v) {
  Real s = 0;
  for (Real x : v) s += x;
  return s;
}
Real product(const Reals& v) {
  Real p = 1;
  for (Real x : v) p *= x;
  return p;
}
Tensor at() { return ints(kAt, {3, kWrites}); }
auto reduced(const char* how, bool self) {
  return [=](Args a) { return scatter_reduce(a[0], 1, at(), a[1], how, self); };
}

const Operand kX{Shape{3, kColumns}}, kSrc{Shape{3, kWrites}};
const Operand kOnce{Shape{3, 2}};
const std::vector<CompositeRow> kTable = {
    {"scatter",
     {kX, kOnce},
     [](Args a) {
       return scatter(a[0], 1, ints({3, 0, 1, 2, 2, 0}, {3, 2}), a[1]);
     },
     [](const std::vector<Reals>& in) {
       Reals r = in[0];
       r[3] = in[1][0], r[0] = in[1][1], r[5] = in[1][2], r[6] = in[1][3], r[10] = in[1][4], r[8] = in[1][5];
       return r;
     }},
    {"sum", {kX, kSrc}, reduced("sum", true), each([](Real x, const Reals& v) { return x + total(v); })},
    {"sum_only", {kX, kSrc}, reduced("sum", false), each([](Real, const Reals& v) { return total(v); })},
    {"mean", {kX, kSrc}, reduced("mean", true), each([](Real x, const Reals& v) {
       return (x + total(v)) / static_cast<Real>(v.size() + 1);
     })},
    {"mean_only", {kX, kSrc}, reduced("mean", false), each([](Real, const Reals& v) {
       return total(v) / static_cast<Real>(v.size());
     })},
    {"prod", {kX, kSrc}, reduced("prod", true), each([](Real x, const Reals& v) { return x * product(v); })},
    {"prod_only", {kX, kSrc}, reduced("prod", false), each([](Real, const Reals& v) { return product(v); })},
    {"amax", {kX, kSrc}, reduced("amax", true), each([](Real x, const Reals& v) {
       return std::max(x, *std::max_element(v.begin(), v.end()));
     })},
    {"amax_only", {kX, kSrc}, reduced("amax", false), each([](Real, const Reals& v) {
       return *std::max_element(v.begin(), v.end());
     })},
    {"amin", {kX, kSrc}, reduced("amin", true), each([](Real x, const Reals& v) {
       return std::min(x, *std::min_element(v.begin(), v.end()));
     })},
    {"amin_only", {kX, kSrc}, reduced("amin", false), each([](Real, const Reals& v) {
       return *std::min_element(v.begin(), v.end());
     })},
    {"index_fill",
     {kX},
     [](Args a) {
       return index_fill(a[0], 1, ints({3, 0}, 2), 0.5);
     },
     [](const std::vector<Reals>& in) {
       Reals r = in[0];
       for (size_t i = 0; i < r.size(); ++i)
         if (i % 4 == 0 || i % 4 == 3) r[i] = 0.5;
       return r;
     }},
    {"take",
     {kX},
     [](Args a) {
       return take(a[0], ints({-1, 0, 5, 5}, {2, 2}));
     },
     [](const std::vector<Reals>& in) {
       return Reals{in[0][11], in[0][0], in[0][5], in[0][5]};
     }},
    {"put",
     {kX, {Shape{2}}},
     [](Args a) {
       return put(a[0], ints({-1, 4}, 2), a[1]);
     },
     [](const std::vector<Reals>& in) {
       Reals r = in[0];
       r[11] = in[1][0], r[4] = in[1][1];
       return r;
     }},
};
WEFT_TEST_COMPOSITES(Scatter, kTable);

TEST(Scatter, WritesInOrderOfPosition) {
  const Tensor x = zeros(3, {.dtype = kInt64});
  EXPECT_EQ(values(scatter(x, 0, ints({1, 1, 2}, 3), ints({5, 6, 7}, 3))), (I{0, 6, 7}));
  EXPECT_EQ(values(scatter(x, 0, ints({1}, 1), 9)), (I{0, 9, 0}));
  EXPECT_EQ(values(scatter(zeros({2, 2}, {.dtype = kInt64}), 0, ints({1, 0}, {1, 2}), ints({3, 4, 5, 6}, {2, 2}))),
            (I{0, 4, 3, 0}));
  EXPECT_EQ(values(scatter(x, 0, ints({}, 0), 1)), (I{0, 0, 0}));
  EXPECT_EQ(scatter(zeros({}), 0, ints({0}, {}), 2.0).item<float>(), 2);
  EXPECT_EQ(values(put(x, ints({0, 0}, 2), ints({3, 4}, 2), true)), (I{7, 0, 0}));
  EXPECT_EQ(values(index_fill(x, 0, ints({1}, {}), 4)), (I{0, 4, 0}));
}

// Writes of `v` with a repeated place, and the gradient of sum(result * weights) by v: of several values for one place
// only the last has one. weights are 1, 10, 100, ... in row-major order.
struct RepeatedRow {
  const char* name;
  Shape x, v;
  Tensor (*write)(const Tensor& x, const Tensor& v);
  D gradient;
};
const RepeatedRow kRepeated[] = {
    {"index_fill",
     {2, 3},
     {},
     [](const Tensor& x, const Tensor& v) {
       return index_fill(x, 1, ints({0, 0, 2}, 3), v);
     },
     {101101}},
    {"index_put",
     {2},
     {},
     [](const Tensor& x, const Tensor& v) {
       return index_put(x, {ints({0, 0}, 2)}, v);
     },
     {1}},
    {"index_put_rows",
     {3},
     {4},
     [](const Tensor& x, const Tensor& v) {
       return index_put(x, {ints({2, 0, 2, -1}, 4)}, v);
     },
     {0, 1, 0, 100}},
    {"index_copy",
     {2, 2},
     {2, 3},
     [](const Tensor& x, const Tensor& v) {
       return index_copy(x, 1, ints({1, 1, 0}, 3), v);
     },
     {0, 10, 1, 0, 1000, 100}},
    {"scatter",
     {2, 2},
     {2, 3},
     [](const Tensor& x, const Tensor& v) {
       return scatter(x, 1, ints({0, 0, 1, 1, 1, 1}, {2, 3}), v);
     },
     {0, 1, 10, 0, 0, 1000}},
    {"put",
     {4},
     {3},
     [](const Tensor& x, const Tensor& v) {
       return put(x, ints({3, 1, 3}, 3), v);
     },
     {0, 10, 1000}},
    {"max_unpool1d",
     {1, 1, 4},
     {1, 1, 3},
     [](const Tensor&, const Tensor& v) {
       return max_unpool1d(v, ints({3, 0, 3}, {1, 1, 3}), 2, 1);
     },
     {0, 1, 1000}},
    {"put_added",
     {4},
     {3},
     [](const Tensor& x, const Tensor& v) {
       return put(x, ints({3, 1, 3}, 3), v, true);
     },
     {1000, 10, 1000}},
};
TEST(Scatter, OfRepeatedPlacesTheLastValueHasTheGradient) {
  for (const RepeatedRow& r : kRepeated) {
    SCOPED_TRACE(r.name);
    D weights;
    for (int64_t i = 0; i < r.x.numel(); ++i) weights.push_back(std::pow(10, i));
    const Tensor w = Tensor::from_vector(weights, r.x), x = zeros(r.x, {.dtype = kFloat64});
    const auto gradient = [&](Tensor v) {
      const Tensor own = v.requires_grad();
      return grad(sum(r.write(x, own) * w), {own})[0];
    };
    const Tensor v = full(r.v, 2, {.dtype = kFloat64});
    EXPECT_EQ(gradient(v).to_vector<double>(), r.gradient);
    EXPECT_EQ(compile(gradient)(v).to_vector<double>(), r.gradient);
    D twice = r.gradient;
    twice.insert(twice.end(), r.gradient.begin(), r.gradient.end());
    EXPECT_EQ(vmap(gradient)(stack({v, v})).to_vector<double>(), twice);
  }
}

TEST(Scatter, ReductionsOfIntegersNanAndInfinity) {
  const Tensor x = ints({10, 20, 30}, 3), i = ints({0, 0, 2, 2}, 4), s = ints({3, 4, 50, -50}, 4);
  EXPECT_EQ(values(scatter_reduce(x, 0, i, s, "sum")), (I{17, 20, 30}));
  EXPECT_EQ(values(scatter_reduce(x, 0, i, s, "mean")), (I{5, 20, 10}));
  EXPECT_EQ(values(scatter_reduce(x, 0, i, s, "mean", false)), (I{3, 20, 0}));
  // Neither the sum nor the count is an i8.
  const Tensor many = scatter_reduce(full({1}, 5, {.dtype = kInt8}), 0, zeros({300}, {.dtype = kInt64}),
                                     full({300}, 5, {.dtype = kInt8}), "mean");
  EXPECT_EQ(values(many.to(kInt64)), I{5});
  EXPECT_EQ(values(scatter_reduce(x, 0, i, s, "prod", false)), (I{12, 20, -2500}));
  EXPECT_EQ(values(scatter_reduce(x, 0, i, s, "amax")), (I{10, 20, 50}));
  EXPECT_EQ(values(scatter_reduce(x, 0, i, s, "amin", false)), (I{3, 20, -50}));
  EXPECT_EQ(values(scatter_reduce(x, 0, ints({}, 0), ints({}, 0), "prod")), (I{10, 20, 30}));
  const double inf = INFINITY, nan = NAN;
  for (const char* how : {"amax", "amin"})
    for (bool self : {true, false}) {
      const D y = scatter_reduce(of({0, 0}), 0, ints({0, 0, 1}, 3), of({nan, 1, -inf}), how, self).to_vector<double>();
      EXPECT_TRUE(std::isnan(y[0])) << how;
      EXPECT_EQ(y[1], std::string(how) == "amax" && self ? 0 : -inf);
    }
}

TEST(Scatter, EqualBestValuesShareTheGradient) {
  const Tensor x = of({2, 5}).requires_grad(), s = of({2, 2, 1, 7}).requires_grad();
  const auto g = grad(sum(scatter_reduce(x, 0, ints({0, 0, 0, 1}, 4), s, "amax")), {x, s});
  EXPECT_EQ(g[0].to_vector<double>(), (D{1.0 / 3, 0}));
  EXPECT_EQ(g[1].to_vector<double>(), (D{1.0 / 3, 1.0 / 3, 0, 1}));
}

TEST(Scatter, Errors) {
  const Tensor x = zeros({2, 3}), i = ints({0, 3}, {1, 2});
  EXPECT_EQ(error_of([&] { scatter(x, 1, i, 1.0); }),
            "scatter: an index is not a position: index_select: index 3 at position 1 is out of range; need 0 to 2");
  expect_error([&] { compile([&](Tensor a) { return scatter(a, 1, i, 1.0); })(x); }, "index 3 at position 1");
  EXPECT_EQ(error_of([&] { scatter(zeros(3), 0, ints({3}, 1), 1.0); }),
            "scatter: an index is not a position: index_copy: index 3 at position 0 is out of range; need 0 to 2");
  EXPECT_EQ(error_of([&] { scatter(x, 1, x, 1.0); }), "scatter: index is f32[2, 3]; need integers");
  expect_error([&] { scatter(x, 0, ints({0}, 1), 1.0); }, "scatter: index [1] and src [1] do not fit x [2, 3]");
  expect_error([&] { scatter(x, 0, ints({0, 0}, {1, 2}), ones({1, 1})); }, "src as large as index");
  EXPECT_EQ(error_of([&] {
              scatter(x, 1, ints({0}, {1, 1}), ints({0}, {1, 1}));
            }),
            "scatter: x and the values are f32 and i64; need one dtype");
  EXPECT_EQ(error_of([&] { scatter_reduce(x, 1, i, x, "max"); }),
            "scatter_reduce: reduce is 'max'; need \"sum\", \"prod\", \"mean\", \"amax\" or \"amin\"");
  EXPECT_EQ(error_of([&] { put(x, ints({0}, 1), ones(2)); }),
            "put: index has shape [1] and source [2]; need equal numbers of elements");
  EXPECT_EQ(error_of([&] {
              fill_diagonal(zeros({2, 3, 3}), 1.0);
            }),
            "fill_diagonal: x is f32[2, 3, 3]; need two dims, or more of equal extents");
  const auto masked = [&](Tensor a) { return masked_scatter(a, a < 1, ones(5)); };
  const char* few = "masked_scatter: source has 5 elements, fewer than the mask has true ones; need one for each";
  EXPECT_EQ(error_of([&] { masked(x); }), few);
  EXPECT_EQ(error_of([&] { compile(masked)(x); }), few);
  EXPECT_EQ(masked_scatter(x, x > 0, zeros({0})).to_vector<float>(), (std::vector<float>(6)));
  const auto outside = [](const char* what, int64_t index, int64_t last) {
    return str_cat(what, ": index ", index, " at position 0 is out of range; need 0 to ", last);
  };
  for (int64_t bad : {int64_t{6}, int64_t{-7}, INT64_MIN, INT64_MAX}) {
    const Tensor at = ints({bad}, 1);
    const auto taken = [](Tensor a, Tensor i) { return take(a, i); };
    EXPECT_EQ(error_of([&] { taken(x, at); }), outside("take: an index is not a position: index_select", bad, 5));
    EXPECT_EQ(error_of([&] { compile(taken)(x, at); }),
              outside("take: an index is not a position: index_select", bad, 5));
    EXPECT_EQ(error_of([&] { put(x, at, 1.0); }), outside("put: an index is not a position: index_copy", bad, 5));
    EXPECT_EQ(error_of([&] { put(x, at, ones(1), true); }),
              outside("put: an index is not a position: index_add", bad, 5));
    EXPECT_EQ(error_of([&] { index_fill(x, 0, at, 1.0); }),
              outside("index_fill: an index is not a position: index_select", bad, 1));
  }
  EXPECT_EQ(
      error_of([] { take(zeros({0}), ints({0}, 1)); }),
      "take: an index is not a position: index_select: index 0 at position 0 is out of range: there is nothing to "
      "choose from");
  EXPECT_EQ(index_fill(x, 1, ints({0, -1}, 2), 3.0).to_vector<float>(), (std::vector<float>{3, 0, 3, 3, 0, 3}));
}

}  // namespace
}  // namespace weft::testing
