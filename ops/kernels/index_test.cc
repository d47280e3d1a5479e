// Tests gather, scatter, sort, top-k and random bits against plain code.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "framework/base/error.h"
#include "framework/base/testing/error_of.h"
#include "framework/base/thread_pool.h"
#include "ops/kernels/kernels.h"
#include "ops/kernels/testing/test_arrays.h"

namespace weft::kernels {
namespace {

using testing::error_of;

constexpr DType kNumbers[] = {kFloat32, kFloat64, kBFloat16, kFloat16, kInt64, kInt32, kInt16, kInt8, kUInt8};

Array numbers(DType t, const Shape& shape) {
  Array a(t, shape);
  a.fill_with([](int64_t i) { return (i * 37 + 11) % 101; });
  return a;
}
Array indices(DType t, const Shape& shape, int64_t limit) {
  Array a(t, shape);
  a.fill_with([&](int64_t i) { return (i * i * 7 + i) % limit; });
  return a;
}
// The position of multi-index i (of `shape`) in an array of shape `other`, with dim replaced by `at`.
int64_t position(int64_t i, const Shape& shape, const Shape& other, int dim, int64_t at) {
  int64_t p = 0, scale = 1;
  for (int d = shape.size() - 1; d >= 0; --d) {
    p += (d == dim ? at : i % shape[d]) * scale;
    i /= shape[d];
    scale *= other[d];
  }
  return p;
}

TEST(Gather, EveryDimAndLayout) {
  for (DType t : {kFloat32, kBFloat16, kBool, kInt64})
    for (DType it : {kInt64, kInt32})
      for (int dim : {0, 1, 2}) {
        const Shape shape{5, 6, 7};
        Shape wanted{4, 5, 6};
        wanted[dim] = 9;
        const Array in = numbers(t, shape).with_strides({1, 5, 30}), index = indices(it, wanted, shape[dim]);
        Array out(t, wanted);
        gather(in, index, dim, out);
        for (int64_t i = 0; i < out.size(); ++i)
          ASSERT_EQ(out[i], in[position(i, wanted, shape, dim, static_cast<int64_t>(index[i]))]);
      }
}

TEST(IndexSelect, EveryDimAndLayout) {
  for (DType t : kNumbers)
    for (int dim : {0, 1, 2})
      for (const Shape& strides : {Shape{42, 7, 1}, Shape{1, 5, 30}}) {
        const Shape shape{5, 6, 7};
        const Array in = numbers(t, shape).with_strides(strides), index = indices(kInt64, {11}, shape[dim]);
        Shape wanted = shape;
        wanted[dim] = 11;
        Array out(t, wanted);
        index_select(in, index, dim, out);
        const Shape s = contiguous_strides(wanted);
        for (int64_t i = 0; i < out.size(); ++i)
          ASSERT_EQ(out[i], in[position(i, wanted, shape, dim, static_cast<int64_t>(index[i / s[dim] % 11]))]);
      }
}

// Indices that count down or up in equal steps, and others that almost do.
TEST(IndexSelect, AlongTheLastDim) {
  for (DType t : {kFloat64, kFloat32, kBFloat16, kInt16, kUInt8})
    for (DType it : {kInt64, kInt32})
      for (const Shape& strides : {Shape{200, 1}, Shape{1, 3}, Shape{400, 2}})
        for (int step : {-1, 1, -2, 0}) {
          const Shape shape{3, 200};
          const int64_t n = step == -2 ? 100 : 200;
          const Array in = numbers(t, shape).with_strides(strides);
          Array index(it, {n}), out(t, {3, n});
          for (int64_t i = 0; i < n; ++i)
            index.set(i, static_cast<double>(step < 0 ? 199 + step * i : step > 0 ? i : i < 150 ? 199 - i : i - 150));
          index_select(in, index, 1, out);
          for (int64_t i = 0; i < out.size(); ++i)
            ASSERT_EQ(out[i], in[i / n * 200 + static_cast<int64_t>(index[i % n])]) << to_string_view(t) << " " << step;
        }
}

TEST(ScatterAdd, EveryDimInOrder) {
  const int before = num_threads();
  for (DType t : kNumbers)
    for (int dim : {0, 1, 2})
      for (int threads : {1, 2}) {
        set_num_threads(threads);
        const Shape shape{5, 6, 700};
        Shape wanted{5, 5, 650};
        wanted[dim] = 40;
        const Array in = numbers(t, shape), src = numbers(t, wanted), index = indices(kInt64, wanted, shape[dim]);
        Array out(t, shape), want(t, shape);
        scatter_add(in, index, src, dim, out);
        std::vector<double> sums(in.size());  // integers: exact, rounded once
        for (int64_t i = 0; i < in.size(); ++i) sums[i] = in[i];
        for (int64_t i = 0; i < src.size(); ++i)
          sums[position(i, wanted, shape, dim, static_cast<int64_t>(index[i]))] += src[i];
        for (int64_t i = 0; i < in.size(); ++i) want.set(i, sums[i]);
        ASSERT_EQ(out.bits(), want.bits()) << to_string_view(t) << " " << dim;
      }
  set_num_threads(before);
}

TEST(IndexAdd, RowsInOrderForAnyThreadCount) {
  const int before = num_threads();
  for (DType t : kNumbers)
    for (const Shape& inner : {Shape{}, Shape{600}, Shape{3, 5}}) {
      const int64_t rows = 13, n = 300;
      Shape shape = inner, from = inner;
      shape.insert(0, rows), from.insert(0, n);
      Array in(t, shape), src(t, from);
      in.fill_uniform(1, 0, 2), src.fill_uniform(2, 0, 2);
      const Array index = indices(kInt32, {n}, rows);
      const int64_t width = inner.numel();
      Array want(t, shape);
      std::vector<float> acc(rows * width);  // exact for integers, the required order for floats
      std::vector<double> wide(rows * width);
      for (int64_t i = 0; i < in.size(); ++i) acc[i] = static_cast<float>(in[i]), wide[i] = in[i];
      for (int64_t i = 0; i < src.size(); ++i) {
        const int64_t p = static_cast<int64_t>(index[i / width]) * width + i % width;
        acc[p] += static_cast<float>(src[i]);
        wide[p] += src[i];
      }
      for (int64_t i = 0; i < in.size(); ++i) want.set(i, t == kFloat64 ? wide[i] : acc[i]);
      for (int threads : {1, 2, 5}) {
        set_num_threads(threads);
        Array out(t, shape);
        index_add(in, index, src, out);
        ASSERT_EQ(out.bits(), want.bits()) << to_string_view(t);
        cast_copy(in, out);
        index_add(out, index, src, out);  // in place
        ASSERT_EQ(out.bits(), want.bits());
      }
    }
  set_num_threads(before);
  // Many more rows than sources.
  Array in(kFloat32, {5000, 4}), src(kFloat32, {3, 4}), out(kFloat32, {5000, 4});
  fill(in, 1), fill(src, 2);
  Array index(kInt64, {3});
  index.set(0, 4999), index.set(1, 7), index.set(2, 4999);
  index_add(in, index, src, out);
  EXPECT_EQ(out[4999 * 4], 5);
  EXPECT_EQ(out[7 * 4 + 3], 3);
  EXPECT_EQ(out[0], 1);
}

TEST(Index, OutOfRangeNamesValuePositionAndLimit) {
  Array in(kFloat32, {4, 3}), index(kInt64, {2, 3}), out(kFloat32, {2, 3}), rows(kInt64, {2});
  index.fill_with([](int64_t i) { return i == 4 ? 9 : 0; });
  rows.fill_with([](int64_t i) { return i == 1 ? -1 : 0; });
  EXPECT_EQ(error_of([&] { gather(in, index, 0, out); }), "gather: index 9 at position 4 is out of range; need 0 to 3");
  EXPECT_EQ(error_of([&] { scatter_add(in, index, out, 0, in); }),
            "scatter_add: index 9 at position 4 is out of range; need 0 to 3");
  EXPECT_EQ(error_of([&] { index_select(in, rows, 0, out); }),
            "index_select: index -1 at position 1 is out of range; need 0 to 3");
  EXPECT_EQ(error_of([&] { index_add(in, rows, out, in); }),
            "index_add: index -1 at position 1 is out of range; need 0 to 3");
}

bool before_in_order(double a, double b) { return std::isnan(b) ? !std::isnan(a) : a < b; }

TEST(Sort, StableInEveryDtypeAndDim) {
  for (DType t : {kFloat32, kFloat64, kBFloat16, kFloat16, kInt64, kInt32, kInt16, kInt8, kUInt8, kBool})
    for (int dim : {0, 1})
      for (bool descending : {false, true})
        for (int spread : {7, 1000003}) {
          const Shape shape{200, 90};
          Array in(t, shape);
          in.fill_with([&](int64_t i) {
            if (is_floating(t) && i % 31 == 5) return i % 2 ? NAN : -0.0;
            return static_cast<double>(i * i * 13 % spread) - (t == kUInt8 ? 0 : 3);
          });
          Array values(t, shape), index(kInt64, shape);
          sort(in, dim, descending, values, index);
          const int64_t n = shape[dim], step = dim == 0 ? 90 : 1;
          for (int64_t line = 0; line < in.size() / n; line += 13) {
            const int64_t base = dim == 0 ? line : line * n;
            std::vector<int64_t> order(n);
            std::iota(order.begin(), order.end(), 0);
            std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
              const double x = in[base + a * step], y = in[base + b * step];
              return descending ? before_in_order(y, x) : before_in_order(x, y);
            });
            for (int64_t i = 0; i < n; ++i) {
              ASSERT_EQ(index[base + i * step], order[i]) << to_string_view(t);
              ASSERT_EQ(0,
                        std::memcmp(values.address(base + i * step), in.address(base + order[i] * step), itemsize(t)));
            }
          }
        }
}

TEST(TopK, IsTheStartOfASort) {
  for (DType t : {kFloat32, kBFloat16, kInt64})
    for (bool largest : {true, false})
      for (int64_t k : {0, 1, 2, 16, 17, 60, 300}) {
        Array in(t, {30, 300});
        in.fill_with([](int64_t i) { return i * i * 13 % 101; });
        Array sorted(t, {30, 300}), order(kInt64, {30, 300}), values(t, {30, k}), index(kInt64, {30, k});
        sort(in, 1, largest, sorted, order);
        topk(in, k, 1, largest, values, index);
        for (int64_t i = 0; i < 30 * k; ++i) {
          ASSERT_EQ(index[i], order[i / k * 300 + i % k]);
          ASSERT_EQ(values[i], sorted[i / k * 300 + i % k]);
        }
      }
  EXPECT_EQ(error_of([&] {
              Array a(kFloat32, {2, 3});
              topk(a, 4, 1, true, a, a);
            }),
            "topk: k is 4; dim 1 has only 3 elements");
}

TEST(RandomBits, GlobalPositionsWhateverTheSplit) {
  Array all(kInt32, {100, 1000});
  random_bits(42, 7, 3, 0, all);
  const int before = num_threads();
  set_num_threads(5);
  Array again(kInt32, {100, 1000}, {1, 100});
  random_bits(42, 7, 3, 0, again);
  set_num_threads(before);
  EXPECT_EQ(all.bits(), again.bits());
  Array part(kInt32, {777});
  random_bits(42, 7, 3, 12345, part);
  for (int64_t i = 0; i < 777; ++i) ASSERT_EQ(part[i], all[12345 + i]);
  Array other(kInt32, {100, 1000});
  for (auto [seed, step, op] : {std::tuple{43, 7, 3}, {42, 8, 3}, {42, 7, 4}}) {
    random_bits(seed, step, op, 0, other);
    int64_t same = 0;
    for (int64_t i = 0; i < all.size(); ++i) same += all[i] == other[i];
    EXPECT_LE(same, 2);
  }
}

}  // namespace
}  // namespace weft::kernels
