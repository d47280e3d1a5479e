// Tests reductions and running sums: bits against a plain version of reduce_order.h, values against f64.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "framework/base/error.h"
#include "framework/base/thread_pool.h"
#include "ops/kernels/kernels.h"
#include "ops/kernels/testing/test_arrays.h"
#include "ops/numerics/reduce_order.h"

namespace weft::kernels {
namespace {

template <class A>
A apply(Rd op, A a, A b) {
  switch (op) {
    case Rd::sum:
      return a + b;
    case Rd::prod:
      return a * b;
    case Rd::max:
      return a > b || a != a ? a : b;
    default:
      return a < b || a != a ? a : b;
  }
}
template <class A>
A identity(Rd op) {
  using L = std::numeric_limits<A>;
  const A most = L::has_infinity ? L::infinity() : L::max();
  return op == Rd::sum ? 0 : op == Rd::prod ? 1 : op == Rd::min ? most : L::has_infinity ? -most : L::lowest();
}
// reduce_order.h, literally.
template <class A>
A in_order(Rd op, const std::vector<A>& x) {
  std::vector<A> blocks;
  for (size_t first = 0; first < x.size(); first += kReduceBlock) {
    A lane[kReduceLanes];
    for (A& l : lane) l = identity<A>(op);
    for (size_t i = first; i < std::min(x.size(), first + kReduceBlock); ++i) {
      A& l = lane[(i - first) % kReduceLanes];
      l = apply(op, l, x[i]);
    }
    for (int s = 8; s > 0; s /= 2)
      for (int l = 0; l < s; ++l) lane[l] = apply(op, lane[l], lane[l + s]);
    blocks.push_back(lane[0]);
  }
  for (size_t s = 1; s < blocks.size(); s *= 2)
    for (size_t i = 0; i + s < blocks.size(); i += 2 * s) blocks[i] = apply(op, blocks[i], blocks[i + s]);
  return blocks[0];
}

// The values of each output's elements, in order.
std::vector<std::vector<double>> groups(const Array& in, uint32_t mask) {
  const Shape& shape = in.view().shape;
  int64_t outputs = 1;
  for (int d = 0; d < shape.size(); ++d)
    if (!(mask >> d & 1)) outputs *= shape[d];
  std::vector<std::vector<double>> g(outputs);
  for (int64_t i = 0; i < in.size(); ++i) {
    int64_t rest = i, o = 0, scale = 1;
    for (int d = shape.size() - 1; d >= 0; --d) {
      if (!(mask >> d & 1)) o += rest % shape[d] * scale, scale *= shape[d];
      rest /= shape[d];
    }
    g[o].push_back(in[i]);
  }
  return g;
}
Shape kept(const Shape& shape, uint32_t mask) {
  Shape k;
  for (int d = 0; d < shape.size(); ++d)
    if (!(mask >> d & 1)) k.push_back(shape[d]);
  return k;
}
Array run(Rd op, const StridedView& in, uint32_t mask, DType out, bool workspace = true) {
  Array y(out, kept(in.shape, mask));
  Workspace ws(reduce_workspace(op, in.dtype, in.shape, mask));
  reduce(op, in, mask, y, workspace ? ws.get() : nullptr);
  return y;
}

struct Case {
  Shape shape;
  uint32_t mask;
};
const Case kCases[] = {
    {{5}, 1},         {{1}, 1},         {{}, 0},         {{3, 17}, 2},       {{17, 40}, 1},  {{4, 3, 50}, 2},
    {{3, 40, 30}, 5}, {{70, 2500}, 2},  {{2500, 70}, 1}, {{2, 1100, 33}, 2}, {{40000}, 1},   {{9, 9, 9, 9}, 10},
    {{300000}, 1},    {{100, 3000}, 3}, {{5000, 3}, 1},  {{2, 3, 4}, 7},     {{1, 1, 6}, 3}, {{50000, 20}, 1},
};

TEST(Reduce, FloatsInTheOneOrder) {
  for (DType t : {kFloat32, kFloat64, kBFloat16, kFloat16})
    for (Rd op : {Rd::sum, Rd::max, Rd::min, Rd::prod})
      for (const Case& c : kCases) {
        if (c.shape.numel() > 100000 && (t != kFloat32 || op != Rd::sum)) continue;
        Array in(t, c.shape);
        in.fill_uniform(3, op == Rd::prod ? 0.9 : -1, op == Rd::prod ? 1.1 : 1);
        const auto g = groups(in, c.mask);
        const DType out = t == kFloat64 ? kFloat64 : kFloat32;
        for (bool workspace : {true, false}) {
          const Array y = run(op, in, c.mask, out, workspace);
          for (size_t i = 0; i < g.size(); ++i) {
            const double want =
                t == kFloat64 ? in_order(op, g[i]) : in_order(op, std::vector<float>(g[i].begin(), g[i].end()));
            ASSERT_EQ(y[i], want) << "shape " << c.shape.to_string() << " mask " << c.mask << " op " << int(op)
                                  << " output " << i;
          }
        }
        if (out != t) {  // rounded once
          const Array wide = run(op, in, c.mask, out), narrow = run(op, in, c.mask, t);
          Array rounded(t, wide.view().shape);
          cast_copy(wide, rounded);
          EXPECT_EQ(narrow.bits(), rounded.bits());
        }
      }
}

// |error| <= (longest chain of additions) * eps * sum of |x|: at most 64 in a lane, 4 between lanes, then the tree.
TEST(Reduce, SumIsCloseToTheTruth) {
  for (int64_t n : {1, 100, 1024, 5000, 300000}) {
    Array in(kFloat32, {n});
    in.fill_uniform(n, -1, 2);
    double sum = 0, absolute = 0;
    for (int64_t i = 0; i < n; ++i) sum += in[i], absolute += std::fabs(in[i]);
    const double chain = 64 + 4 + std::ceil(std::log2(n / 1024.0 + 1));
    EXPECT_LE(std::fabs(run(Rd::sum, in, 1, kFloat32)[0] - sum), chain * 0x1p-24 * absolute) << n;
  }
}

TEST(Reduce, SameBitsInEveryLayoutAndThreadCount) {
  const Shape shape{40, 70, 90};
  Array in(kFloat32, shape);
  in.fill_uniform(5, -1, 1);
  const int before = num_threads();
  for (uint32_t mask = 1; mask < 8; ++mask) {
    const auto want = run(Rd::sum, in, mask, kFloat32).bits();
    for (const Shape& strides : {Shape{1, 40, 2800}, Shape{90, 3600, 1}, Shape{6300, 1, 70}, Shape{12600, 180, 2}}) {
      const Array moved = in.with_strides(strides);
      for (int threads : {1, 2, 5}) {
        set_num_threads(threads);
        EXPECT_EQ(run(Rd::sum, moved, mask, kFloat32).bits(), want) << mask << " " << strides.to_string();
      }
    }
    // An output with its own strides.
    const Shape k = kept(shape, mask);
    Shape strides;
    int64_t step = 3;
    for (int d = 0; d < k.size(); ++d) strides.push_back(step), step *= k[d];
    Array y(kFloat32, k, strides);
    Workspace ws(reduce_workspace(Rd::sum, kFloat32, shape, mask));
    reduce(Rd::sum, in, mask, y, ws.get());
    EXPECT_EQ(y.bits(), want);
  }
  set_num_threads(before);
}

TEST(Reduce, WholeNumbersAndBool) {
  for (DType t : {kInt64, kInt32, kUInt8, kBool})
    for (Rd op : {Rd::sum, Rd::max, Rd::min, Rd::prod})
      for (const Case& c : kCases) {
        if (c.shape.numel() > 100000) continue;
        Array in(t, c.shape);
        in.fill_with([&](int64_t i) { return op == Rd::prod ? 1 + (i % 97 == 0) : i % 11 - (t == kUInt8 ? 0 : 5); });
        const auto g = groups(in, c.mask);
        const Array y = run(op, in, c.mask, op == Rd::sum || op == Rd::prod ? kInt64 : t);
        for (size_t i = 0; i < g.size(); ++i) {
          std::vector<uint64_t> unsigned_values;  // wraps
          for (double v : g[i]) unsigned_values.push_back(static_cast<uint64_t>(static_cast<int64_t>(v)));
          if (op == Rd::sum || op == Rd::prod) {
            ASSERT_EQ(y[i], static_cast<double>(static_cast<int64_t>(in_order(op, unsigned_values))));
          } else {
            ASSERT_EQ(y[i], in_order(op, g[i]));
          }
        }
      }
}

TEST(Reduce, NanAndEmpty) {
  for (int64_t n : {1, 5, 40, 3000})
    for (int64_t at : {int64_t{0}, n / 2, n - 1}) {
      Array in(kFloat32, {n});
      in.fill_uniform(1, -1, 1);
      in.set(at, NAN);
      EXPECT_TRUE(std::isnan(run(Rd::max, in, 1, kFloat32)[0]));
      EXPECT_TRUE(std::isnan(run(Rd::min, in, 1, kFloat32)[0]));
      EXPECT_EQ(run(Rd::argmax, in, 1, kInt64)[0], at);
      EXPECT_EQ(run(Rd::argmin, in, 1, kInt64)[0], at);
    }
  Array none(kFloat32, {3, 0});
  EXPECT_EQ(run(Rd::sum, none, 2, kFloat32)[2], 0);
  EXPECT_EQ(run(Rd::prod, none, 2, kFloat32)[2], 1);
  EXPECT_EQ(run(Rd::sum, none, 1, kFloat32).size(), 0);
  EXPECT_THROW(run(Rd::max, none, 2, kFloat32), Error);
  EXPECT_THROW(run(Rd::argmax, none, 2, kInt64), Error);
  EXPECT_THROW(run(Rd::argmax, Array(kFloat32, {2, 2}), 3, kInt64), Error);
}

TEST(Reduce, ArgTakesTheFirstBest) {
  for (DType t : {kFloat32, kFloat64, kBFloat16, kFloat16, kInt64, kInt32, kUInt8, kBool})
    for (bool largest : {true, false})
      for (int dim : {0, 1, 2}) {
        Array in(t, {21, 35, 19});
        in.fill_with([&](int64_t i) { return t == kBool ? i % 3 == 1 : (i * i + 7 * i) % 13; });
        const auto g = groups(in, 1u << dim);
        for (const Shape& strides : {Shape{665, 19, 1}, Shape{1, 21, 735}, Shape{38, 798, 2}}) {
          const Array moved = in.with_strides(strides);
          const Array y = run(largest ? Rd::argmax : Rd::argmin, moved, 1u << dim, kInt64);
          for (size_t i = 0; i < g.size(); ++i) {
            const auto best =
                largest ? std::max_element(g[i].begin(), g[i].end()) : std::min_element(g[i].begin(), g[i].end());
            ASSERT_EQ(y[i], best - g[i].begin());
          }
        }
      }
}

TEST(Cumsum, EveryDimBothWays) {
  for (DType t : {kFloat32, kFloat64, kBFloat16, kInt64, kInt32, kBool})
    for (int dim : {0, 1, 2})
      for (bool reverse : {false, true}) {
        const Shape shape{7, 600, 5};
        Array in(t, shape);
        in.fill_with([](int64_t i) { return i % 3 - 1; });  // exact in every dtype
        const DType out = is_floating(t) ? t : kInt64;
        for (const Shape& strides : {Shape{3000, 5, 1}, Shape{1, 7, 4200}}) {
          const Array moved = in.with_strides(strides);
          Array y(out, shape);
          cumsum(moved, dim, y, reverse);
          const Shape s = contiguous_strides(shape);
          for (int64_t i = 0; i < in.size(); ++i) {
            const int64_t at = i / s[dim] % shape[dim];
            if (reverse ? at == shape[dim] - 1 : at == 0) {
              ASSERT_EQ(y[i], in[i]);
            } else {
              ASSERT_EQ(y[i], y[i + (reverse ? s[dim] : -s[dim])] + in[i]);
            }
          }
        }
      }
}

TEST(Reduce, TheStepsOfTheOrderAloneStartFromTheIdentityAndCombine) {
  for (Rd op : {Rd::sum, Rd::max, Rd::min, Rd::prod}) {
    float a[3], b[] = {1, -2, 3};
    fill_identity(op, kFloat32, a, 3);
    combine(op, kFloat32, a, b, 3);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(a[i], b[i]);
    int64_t c[2], d[] = {5, INT64_MIN};
    fill_identity(op, kInt64, c, 2);
    EXPECT_EQ(c[1], identity<int64_t>(op));
    combine(op, kInt64, c, d, 2);
    for (int i = 0; i < 2; ++i) EXPECT_EQ(c[i], d[i]);
  }
}

}  // namespace
}  // namespace weft::kernels
