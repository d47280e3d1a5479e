// Tests order-free sums: correctly rounded, and the same bits for any order and any split, whatever the terms are.
#include "ops/kernels/sums/exact.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "framework/base/error.h"
#include "framework/base/thread_pool.h"
#include "ops/kernels/kernels.h"
#include "ops/kernels/testing/test_arrays.h"

namespace weft::kernels {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr float kMost = std::numeric_limits<float>::max(), kLeastFloat = std::numeric_limits<float>::denorm_min();
using Digits = std::vector<int64_t>;

template <class T>
StridedView view(std::vector<T>& v, const Shape& shape) {
  return {v.data(), DTypeOf<T>::value, shape, contiguous_strides(shape)};
}

Digits sum(std::vector<float> x) {
  Digits d(kExactWidth);
  std::vector<double> scratch(x.size() + 8);
  exact_sum(view(x, {static_cast<int64_t>(x.size())}), 1, view(d, {kExactWidth}), scratch.data());
  return d;
}
template <class T>
Digits dot(std::vector<T> a, std::vector<T> b) {
  Digits d(kExactWidth);
  const auto k = static_cast<int64_t>(a.size());
  std::vector<double> scratch(2 * (a.size() + 8));
  exact_gemm(view(a, {1, 1, k}), view(b, {1, k, 1}), view(d, {1, 1, 1, kExactWidth}), scratch.data());
  return d;
}
Digits plus(Digits a, const Digits& b) {
  for (size_t i = 0; i < a.size(); ++i) a[i] += b[i];
  return a;
}
template <class T = float>
T finish(Digits d) {
  std::vector<T> y(1);
  exact_finish(view(d, {1, kExactWidth}), view(y, {1}));
  return y[0];
}
uint32_t bits(float x) { return std::bit_cast<uint32_t>(x); }

// Floats of all magnitudes between these exponents, both signs.
std::vector<float> wide(std::mt19937_64& random, size_t n, int from, int to) {
  std::vector<float> x(n);
  for (float& v : x) {
    const double m = 1 + static_cast<double>(random() >> 12) * 0x1p-52;
    v = static_cast<float>(
        std::ldexp(random() & 1 ? m : -m, from + static_cast<int>(random() % static_cast<uint64_t>(to - from + 1))));
  }
  return x;
}

// The sum of multiples of 2^-60 below 2^60 in magnitude, by 128-bit integers: rounded once.
float rounded(__int128 sum60) {
  const bool negative = sum60 < 0;
  unsigned __int128 v = negative ? -static_cast<unsigned __int128>(sum60) : static_cast<unsigned __int128>(sum60);
  int drop = 0;
  while (v >> drop >= 1 << 24) ++drop;
  auto q = static_cast<uint64_t>(v >> drop);
  if (drop) {
    const unsigned __int128 rest = v - (static_cast<unsigned __int128>(q) << drop),
                            half = static_cast<unsigned __int128>(1) << (drop - 1);
    if (rest > half || (rest == half && q & 1)) ++q;
  }
  const auto r = static_cast<float>(std::ldexp(static_cast<double>(q), drop - 60));
  return negative ? -r : r;
}

TEST(Exact, SumsAreCorrectlyRounded) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 300; ++round) {
    std::vector<float> x = wide(random, 1 + random() % 200, -36, 40);
    if (round % 3 == 0)  // the rest when most terms cancel
      for (size_t i = 0; i + 1 < x.size(); i += 2) x[i + 1] = -x[i];
    __int128 want = 0;
    for (float v : x) want += static_cast<__int128>(std::ldexp(static_cast<double>(v), 60));
    EXPECT_EQ(bits(finish(sum(x))), bits(rounded(want)));
    EXPECT_EQ(finish<double>(sum(x)), static_cast<double>(static_cast<long double>(want) * 0x1p-60L)) << round;
  }
}

TEST(Exact, HalvesGoToEven) {
  EXPECT_EQ(finish(sum({0x1p24f, 1})), 0x1p24f);
  EXPECT_EQ(finish(sum({0x1p24f, 1, kLeastFloat})), 0x1p24f + 2);
  EXPECT_EQ(finish(sum({0x1p24f, 1, -kLeastFloat})), 0x1p24f);
  EXPECT_EQ(finish(sum({0x1p24f + 2, 1})), 0x1p24f + 4);
  EXPECT_EQ(finish(sum({-0x1p24f, -1, -kLeastFloat})), -0x1p24f - 2);
  EXPECT_EQ(static_cast<float>(finish<bfloat16>(sum({256, 1}))), 256);
  EXPECT_EQ(static_cast<float>(finish<bfloat16>(sum({256, 1, 0x1p-100f}))), 258);
  EXPECT_EQ(static_cast<float>(finish<float16>(sum({2048, 1}))), 2048);
  EXPECT_EQ(static_cast<float>(finish<float16>(sum({2048, 1, 0x1p-100f}))), 2050);
  EXPECT_EQ(static_cast<float>(finish<float16>(sum({0x1p-25f}))), 0);  // half of the smallest, to even
  EXPECT_EQ(static_cast<float>(finish<float16>(sum({0x1p-25f, kLeastFloat}))), 0x1p-24f);
  EXPECT_EQ(static_cast<float>(finish<float16>(sum({65519}))), 65504);
  EXPECT_EQ(static_cast<float>(finish<float16>(sum({65520}))), kInf);
}

TEST(Exact, ProductsAreCorrectlyRounded) {
  std::mt19937_64 random(2);
  for (int round = 0; round < 300; ++round) {
    const size_t n = 1 + random() % 300;
    const std::vector<float> a = wide(random, n, -6, 12), b = wide(random, n, -6, 12);
    __int128 want = 0;
    for (size_t i = 0; i < n; ++i)
      want += static_cast<__int128>(std::ldexp(static_cast<double>(a[i]) * static_cast<double>(b[i]), 60));
    EXPECT_EQ(bits(finish(dot(a, b))), bits(rounded(want))) << round;
  }
}

TEST(Exact, AnyOrderAndAnySplitGiveTheSameBits) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 60; ++round) {
    const size_t n = round < 50 ? 2 + random() % 3000 : kExactPlain + random() % 40000;
    const int low = -140 + static_cast<int>(random() % 200),
              high = std::min(126, low + static_cast<int>(random() % 260));
    std::vector<float> a = wide(random, n, low, high),
                       b = wide(random, n, std::max(-140, -high), std::min(126 - std::max(high, 0), 30));
    const float want_sum = finish(sum(a)), want_dot = finish(dot(a, b));
    std::vector<size_t> order(n);
    std::iota(order.begin(), order.end(), size_t{0});
    std::shuffle(order.begin(), order.end(), random);
    std::vector<float> p, q;
    for (size_t i : order) p.push_back(a[i]), q.push_back(b[i]);
    EXPECT_EQ(bits(finish(sum(p))), bits(want_sum));
    EXPECT_EQ(bits(finish(dot(p, q))), bits(want_dot));
    const bool plain = n <= static_cast<size_t>(kExactPlain);
    if (plain) {
      EXPECT_EQ(sum(p), sum(a));
    }
    Digits sums(kExactWidth), dots(kExactWidth);
    for (size_t at = 0; at < n;) {
      const size_t end = std::min(n, at + 1 + random() % (n / 3 + 1));
      auto part = [&](const std::vector<float>& v) {
        return std::vector<float>(v.begin() + static_cast<int64_t>(at), v.begin() + static_cast<int64_t>(end));
      };
      sums = plus(sums, sum(part(p)));
      dots = plus(dots, dot(part(p), part(q)));
      at = end;
    }
    EXPECT_EQ(bits(finish(sums)), bits(want_sum));
    EXPECT_EQ(bits(finish(dots)), bits(want_dot));
    if (plain) {
      EXPECT_EQ(dots, dot(a, b));
    }
  }
}

TEST(Exact, DigitsLeftOutChangeNothing) {
  // The same numbers among others of other magnitudes, which cancel: other digits are used, with the same sum.
  std::mt19937_64 random(4);
  for (int round = 0; round < 200; ++round) {
    const int e = -150 + static_cast<int>(random() % 270);
    const std::vector<float> x = wide(random, 20, e, e + 6);
    std::vector<float> more = x;
    for (float v : {0x1p126f, 0x1.8p90f, 1.f, 0x1.234568p-60f, kLeastFloat}) more.insert(more.end(), {v, -v});
    EXPECT_EQ(sum(more), sum(x)) << e;
    EXPECT_EQ(bits(finish(sum({x[0]}))), bits(x[0])) << "one float is itself";
  }
}

TEST(Exact, DenormalsAndWhatIsBelowTheGrid) {
  EXPECT_EQ(finish(sum({kLeastFloat, kLeastFloat, kLeastFloat})), 3 * kLeastFloat);
  EXPECT_EQ(finish(sum({0x1p-126f, -kLeastFloat})), 0x1p-126f - kLeastFloat);
  EXPECT_EQ(finish(dot<float>({0x1p-75f}, {0x1p-75f})), 0);              // 2^-150: half of the grid, to even
  EXPECT_EQ(finish(dot<float>({0x1.8p-75f}, {0x1p-75f})), kLeastFloat);  // three quarters
  EXPECT_EQ(finish(dot<float>({kLeastFloat}, {kLeastFloat})), 0);
  EXPECT_EQ(finish(dot<float>({kLeastFloat, 3}, {kMost, 0})), kLeastFloat * kMost);
  EXPECT_EQ(bits(finish(sum({-0.f, -0.f}))), bits(0.f));
  EXPECT_EQ(finish(sum({})), 0);
}

TEST(Exact, WhatIsNoNumberIsNotLost) {
  const float inf = static_cast<float>(kInf), nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(finish(sum({1, inf, 2})), inf);
  EXPECT_EQ(finish(sum({1, -inf, -inf})), -inf);
  EXPECT_TRUE(std::isnan(finish(sum({inf, -inf}))));
  EXPECT_TRUE(std::isnan(finish(sum({nan}))));
  EXPECT_TRUE(std::isnan(finish(sum({nan, inf}))));
  EXPECT_TRUE(std::isnan(finish(dot<float>({0, 1}, {inf, 1}))));
  EXPECT_EQ(finish(dot<float>({kMost, 1}, {-2, 1})), -inf);
  EXPECT_EQ(finish(dot<double>({1e300, 1}, {1e300, 1})), inf);
  EXPECT_EQ(finish(sum({kMost, kMost})), inf);            // the sum exceeds f32
  EXPECT_EQ(finish(sum({kMost, kMost, -kMost})), kMost);  // this one does not
  EXPECT_EQ(finish<double>(sum({kMost, kMost})), 2.0 * kMost);
  EXPECT_TRUE(std::isnan(finish(plus(sum({inf}), sum({-inf})))));
  EXPECT_TRUE(std::isnan(finish(plus(sum({1, 2}), sum({3, nan})))));
  for (float v : {inf, -inf, nan}) {  // counts of 3 << 20 terms would overflow without carries
    const Digits d = sum(std::vector<float>(3 << 20, v));
    EXPECT_EQ(bits(finish(d)) & 0xffc00000, bits(v) & 0xffc00000);
    EXPECT_GT(d[kExactDigits], 0);
  }
}

TEST(Exact, SumsOfMillionsHaveRoom) {
  const int64_t n = 5 << 20;
  EXPECT_EQ(finish(sum(std::vector<float>(n, 1))), static_cast<float>(n));
  EXPECT_EQ(finish<double>(sum(std::vector<float>(n, 0x1.fffffep-3f))), 0x1.fffffep-3 * n);
  EXPECT_EQ(finish<double>(sum(std::vector<float>(1 << 14, -kMost))), -kInf);  // -2^142
  EXPECT_EQ(finish<double>(sum(std::vector<float>(1 << 9, -kMost))), -0x1p9 * kMost);
  Digits all(kExactWidth);
  const Digits part = sum(std::vector<float>(kExactPlain, kMost / 1e6f));
  for (int i = 0; i < 1024; ++i) all = plus(all, part);
  EXPECT_EQ(finish<double>(all), 0x1p24 * static_cast<double>(kMost / 1e6f));
}

TEST(Exact, GemmAndSumsAreTheSameForAnyDtypeAndLayout) {
  std::mt19937_64 random(5);
  for (DType t : {kFloat32, kFloat64, kBFloat16, kFloat16})
    for (const Shape& s : {Shape{1, 3, 5, 7}, Shape{2, 17, 9, 70}, Shape{1, 1, 40, 300}, Shape{3, 30, 1, 8}}) {
      const int64_t batch = s[0], m = s[1], n = s[2], k = s[3];
      Array a(t, {batch, m, k}), b(t, {batch, k, n}, {k * n, 1, k});
      a.fill_uniform(random(), -2, 2);
      b.fill_uniform(random(), -2, 2);
      Digits d(static_cast<size_t>(batch * m * n * kExactWidth));
      std::vector<double> scratch(static_cast<size_t>(batch * (m + n) * k + 16));
      exact_gemm(a, b, view(d, {batch, m, n, kExactWidth}), scratch.data());
      for (int64_t r = 0; r < batch * m * n; ++r) {
        std::vector<double> p, q;
        for (int64_t i = 0; i < k; ++i) {
          p.push_back(a[r / n * k + i]);
          q.push_back(b[(r / (m * n) * k + i) * n + r % n]);
        }
        const Digits want = dot(p, q), got(d.begin() + r * kExactWidth, d.begin() + (r + 1) * kExactWidth);
        ASSERT_EQ(got, want) << to_string_view(t) << " " << r;
      }
    }
}

TEST(Exact, GroupsCutAnywhereAddUp) {
  std::mt19937_64 random(6);
  const int64_t t = 60, k = 11, n = 6, groups = 4;
  Array x(kFloat32, {t, k}), g(kFloat32, {t, n});
  x.fill_uniform(1, -2, 2);
  g.fill_uniform(2, -2, 2);
  std::vector<double> scratch(t * (k + n) + 16);
  auto product = [&](std::vector<int64_t> offsets) {
    Digits d(groups * k * n * kExactWidth);
    exact_grouped_gemm(GroupedMode::contraction, x, g, view(offsets, {groups + 1}),
                       view(d, {groups, k, n, kExactWidth}), scratch.data());
    return d;
  };
  const Digits whole = product({0, 13, 13, 40, 60});
  // The rows in two halves: each group has a part in each.
  EXPECT_EQ(plus(product({0, 13, 13, 27, 27}), product({27, 27, 27, 40, 60})), whole);
  std::vector<int64_t> falling{0, 13, 12, 40, 60};
  EXPECT_THROW(product(falling), Error);
}

TEST(Exact, ScatteredRowsAddUpInAnyOrder) {
  std::mt19937_64 random(7);
  const int64_t n = 3 * kExactPlain, rows = 5, width = 3;
  std::vector<float> src = wide(random, n * width, -40, 40);
  std::vector<int64_t> index(n);
  for (int64_t& i : index) i = static_cast<int64_t>(random() % rows);
  Digits d(rows * width * kExactWidth);
  std::vector<double> scratch(n * width + 8);
  exact_index_add(view(index, {n}), view(src, {n, width}), view(d, {rows, width, kExactWidth}), scratch.data());
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < width; ++c) {
      std::vector<float> terms;
      for (int64_t i = n - 1; i >= 0; --i)
        if (index[i] == r) terms.push_back(src[i * width + c]);
      const int64_t at = (r * width + c) * kExactWidth;
      EXPECT_EQ(bits(finish(Digits(d.begin() + at, d.begin() + at + kExactWidth))), bits(finish(sum(terms))));
    }
  // The same along dim 0 of scatter_add.
  std::vector<int64_t> wide_index(n * width);
  for (int64_t i = 0; i < n * width; ++i) wide_index[i] = index[i / width];
  Digits e(d.size());
  exact_scatter_add(view(wide_index, {n, width}), view(src, {n, width}), 0, view(e, {rows, width, kExactWidth}),
                    scratch.data());
  for (size_t at = 0; at < d.size(); at += kExactWidth)
    EXPECT_EQ(bits(finish(Digits(e.begin() + at, e.begin() + at + kExactWidth))),
              bits(finish(Digits(d.begin() + at, d.begin() + at + kExactWidth))));
}

TEST(Exact, CarryingKeepsTheValue) {
  std::mt19937_64 random(8);
  for (int round = 0; round < 200; ++round) {
    Digits d(kExactWidth);
    for (int j = 0; j < kExactDigits - 1; ++j) d[j] = static_cast<int64_t>(random()) >> (2 + random() % 60);
    Digits carried = d;
    exact_carry(carried.data());
    for (int j = 0; j < kExactDigits - 1; ++j) EXPECT_LE(std::abs(carried[j]), int64_t{1} << 39);
    EXPECT_EQ(finish<double>(d), finish<double>(carried));
    EXPECT_EQ(bits(finish(d)), bits(finish(carried)));
  }
}

}  // namespace
}  // namespace weft::kernels
