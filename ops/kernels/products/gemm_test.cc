// Tests matrix products against f64, within the bound of a dot product: |error| <= (k + 2) eps sum |a||b|, plus the
// rounding of the output.
#include "ops/kernels/products/gemm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "framework/base/error.h"
#include "framework/base/thread_pool.h"
#include "ops/kernels/testing/test_arrays.h"

namespace weft::kernels {
namespace {

Array run(const StridedView& a, const StridedView& b, DType out) {
  const int r = a.shape.size();
  Shape shape = a.shape;
  shape[r - 1] = b.shape[r - 1];
  Array c(out, shape);
  int64_t batch = 1;
  for (int d = 0; d < r - 2; ++d) batch *= shape[d];
  Workspace ws(gemm_workspace(a.dtype, out, batch, shape[r - 2], shape[r - 1], a.shape[r - 1]));
  gemm(a, b, c, ws.get());
  return c;
}

// One element of the product, and the sum of absolute values.
void expect_close(double got, const std::function<double(int64_t)>& a, const std::function<double(int64_t)>& b,
                  int64_t k, DType out, DType in) {
  double sum = 0, absolute = 0;
  for (int64_t i = 0; i < k; ++i) sum += a(i) * b(i), absolute += std::fabs(a(i) * b(i));
  const double eps = in == kFloat64 ? 0x1p-53 : 0x1p-24;
  ASSERT_LE(std::fabs(got - sum), (k + 2) * eps * absolute + (out == kFloat64 ? 0 : 0.5 * ulp(sum, out)) * (1 + 1e-6))
      << got << " for " << sum;
}

void check_product(const Array& a, const Array& b, const Array& c) {
  const int r = a.view().shape.size();
  const int64_t m = a.view().shape[r - 2], k = a.view().shape[r - 1], n = b.view().shape[r - 1];
  const int64_t step = std::max<int64_t>(1, c.size() / 400) | 1;
  for (int64_t i = 0; i < c.size(); i += step) {
    const int64_t batch = i / (m * n), row = i / n % m, col = i % n;
    expect_close(
        c[i], [&](int64_t p) { return a[(batch * m + row) * k + p]; },
        [&](int64_t p) { return b[(batch * k + p) * n + col]; }, k, c.view().dtype, a.view().dtype);
  }
}

struct Size {
  int64_t batch, m, n, k;
};
const Size kSizes[] = {{1, 1, 1, 1},     {1, 8, 8, 8},    {2, 3, 5, 7},      {1, 16, 16, 16},   {1, 1, 300, 200},
                       {1, 300, 1, 70},  {3, 64, 64, 33}, {1, 130, 70, 600}, {1, 257, 300, 40}, {1, 33, 65, 1100},
                       {1, 4, 70, 333},  {2, 3, 600, 65}, {1, 2, 1100, 9},   {3, 20, 70, 333},  {3, 12, 70, 333},
                       {1, 32, 1100, 9}, {2, 700, 1, 300}};

TEST(Gemm, FloatsWithAnyTransposes) {
  for (DType t : {kFloat32, kBFloat16, kFloat16, kFloat64})
    for (const Size& s : kSizes)
      for (int layout = 0; layout < 4; ++layout) {
        const bool ta = layout & 1, tb = layout & 2;
        Array a(t, {s.batch, s.m, s.k}, ta ? Shape{s.m * s.k, 1, s.m} : Shape{s.m * s.k, s.k, 1});
        Array b(t, {s.batch, s.k, s.n}, tb ? Shape{s.n * s.k, 1, s.k} : Shape{s.n * s.k, s.n, 1});
        a.fill_uniform(1, -1, 1), b.fill_uniform(2, -1, 1);
        check_product(a, b, run(a, b, t));
        if (t != kFloat64 && layout == 2) check_product(a, b, run(a, b, kFloat32));
      }
}

TEST(Gemm, OddStridesBroadcastAndSeveralBatchDims) {
  for (DType t : {kFloat32, kBFloat16}) {
    // Heads of [B, S, H, D] without a copy, one operand shared by the batch, and rows two apart.
    Array q(t, {2, 3, 40, 16}, {40 * 48, 16, 48, 1}), k(t, {2, 3, 16, 50}, {50 * 48, 16, 1, 48});
    q.fill_uniform(1, -1, 1), k.fill_uniform(2, -1, 1);
    check_product(q, k, run(q, k, t));
    Array a(t, {4, 20, 30}, {1200, 60, 2}), w(t, {4, 30, 25}, {0, 25, 1});
    a.fill_uniform(3, -1, 1), w.fill_uniform(4, -1, 1);
    check_product(a, w, run(a, w, t));
    Array same_rows(t, {1, 20, 30}, {0, 0, 1});
    same_rows.fill_uniform(3, -1, 1);
    Array x(t, {1, 30, 25});
    x.fill_uniform(5, -1, 1);
    check_product(same_rows, x, run(same_rows, x, t));
    Array flat(t, {20, 30});
    flat.fill_uniform(5, -1, 1);
    Array flat_w(t, {30, 8});
    flat_w.fill_uniform(6, -1, 1);
    check_product(flat, flat_w, run(flat, flat_w, t));
  }
}

TEST(Gemm, SameBitsForAnyThreadCount) {
  const int before = num_threads();
  for (DType t : {kFloat32, kBFloat16, kFloat64}) {
    Array a(t, {2, 300, 700}), b(t, {2, 700, 200}, {140000, 1, 700});
    a.fill_uniform(1, -1, 1), b.fill_uniform(2, -1, 1);
    std::vector<char> first;
    for (int threads : {1, 2, 5, 2}) {
      set_num_threads(threads);
      const auto bits = run(a, b, t).bits();
      if (first.empty()) first = bits;
      EXPECT_EQ(bits, first) << to_string_view(t) << " " << threads;
    }
  }
  set_num_threads(before);
}

TEST(Gemm, WholeNumbersAndNothing) {
  for (DType t : {kInt64, kInt32, kInt16, kInt8, kUInt8})
    for (DType out : {t, kInt64}) {
      Array a(t, {2, 9, 40}), b(t, {2, 40, 6});
      a.fill_with([](int64_t i) { return i % 3; }), b.fill_with([](int64_t i) { return i % 2; });
      const Array c = run(a, b, out);
      for (int64_t i = 0; i < c.size(); ++i) {
        double want = 0;
        for (int64_t k = 0; k < 40; ++k) want += a[i / 6 * 40 + k] * b[(i / 54 * 40 + k) * 6 + i % 6];
        ASSERT_EQ(c[i], want);
      }
    }
  const Array c = run(Array(kFloat32, {1, 40, 0}), Array(kFloat32, {1, 0, 50}), kFloat32);
  for (int64_t i = 0; i < c.size(); ++i) ASSERT_EQ(c[i], 0);
  EXPECT_EQ(run(Array(kFloat32, {0, 4, 3}), Array(kFloat32, {0, 3, 4}), kFloat32).size(), 0);
  EXPECT_THROW(run(Array(kFloat32, {1, 2, 3}), Array(kFloat32, {1, 4, 5}), kFloat32), Error);
  EXPECT_THROW(run(Array(kFloat32, {1, 2, 3}), Array(kFloat64, {1, 3, 5}), kFloat32), Error);
}

TEST(Gemm, RepeatedCallsGiveTheSameBits) {
  for (DType t : {kFloat32, kBFloat16})
    for (const Size& s : kSizes) {
      Array a(t, {s.batch, s.m, s.k}), b(t, {s.batch, s.k, s.n});
      a.fill_uniform(1, -1, 1), b.fill_uniform(2, -1, 1);
      EXPECT_EQ(run(a, b, t).bits(), run(a, b, t).bits());
    }
}

Array offsets_of(const std::vector<int64_t>& values, DType t = kInt64) {
  Array o(t, {static_cast<int64_t>(values.size())});
  for (size_t i = 0; i < values.size(); ++i) o.set(i, values[i]);
  return o;
}

TEST(GroupedGemm, RowsByGroup) {
  for (DType t : {kFloat32, kBFloat16, kFloat16, kFloat64})
    for (bool transposed : {false, true}) {
      const int64_t rows = 700, k = 70, n = 90;
      const std::vector<int64_t> edges = {3, 40, 40, 72, 600, 690};
      Array x(t, {rows, k}), y(t, {rows, n});
      Array w(t, {5, k, n}, transposed ? Shape{k * n, 1, k} : Shape{k * n, n, 1});
      x.fill_uniform(1, -1, 1), w.fill_uniform(2, -1, 1);
      const Array o = offsets_of(edges, transposed ? kInt32 : kInt64);
      Workspace ws(grouped_gemm_workspace(GroupedMode::rows, t, t, 5, rows, k, n));
      grouped_gemm(GroupedMode::rows, x, w, o, y, ws.get());
      for (int64_t r = 0; r < rows; r += 3) {
        int64_t e = 4;
        while (e >= 0 && edges[e] > r) --e;
        const bool outside = e < 0 || r >= edges[5];
        for (int64_t j = 0; j < n; j += 7) {
          if (outside) {
            ASSERT_EQ(y[r * n + j], 0);
          } else {
            expect_close(
                y[r * n + j], [&](int64_t i) { return x[r * k + i]; },
                [&](int64_t i) { return w[(e * k + i) * n + j]; }, k, t, t);
          }
        }
      }
    }
}

TEST(GroupedGemm, ContractionOverTheRowsOfAGroup) {
  for (DType t : {kFloat32, kBFloat16, kFloat16, kFloat64})
    for (DType out : {t, t == kFloat64 ? kFloat64 : kFloat32}) {
      const int64_t rows = 700, k = 70, n = 90;
      const std::vector<int64_t> edges = {0, 40, 40, 73, 600, 690};
      Array x(t, {rows, k}), g(t, {rows, n}), dw(out, {5, k, n});
      x.fill_uniform(1, -1, 1), g.fill_uniform(2, -1, 1);
      const Array o = offsets_of(edges);
      Workspace ws(grouped_gemm_workspace(GroupedMode::contraction, t, out, 5, rows, k, n));
      grouped_gemm(GroupedMode::contraction, x, g, o, dw, ws.get());
      for (int64_t i = 0; i < dw.size(); i += 101) {
        const int64_t e = i / (k * n), row = i / n % k, col = i % n, count = edges[e + 1] - edges[e];
        ASSERT_TRUE(count > 0 || dw[i] == 0);
        expect_close(
            dw[i], [&](int64_t r) { return x[(edges[e] + r) * k + row]; },
            [&](int64_t r) { return g[(edges[e] + r) * n + col]; }, count, out, t);
      }
    }
}

TEST(GroupedGemm, SameBitsForAnyThreadCountAndBadOffsets) {
  const int before = num_threads();
  Array x(kBFloat16, {900, 128}), w(kBFloat16, {3, 128, 256}), y(kBFloat16, {900, 256});
  x.fill_uniform(1, -1, 1), w.fill_uniform(2, -1, 1);
  const Array o = offsets_of({0, 100, 700, 900});
  Workspace ws(grouped_gemm_workspace(GroupedMode::rows, kBFloat16, kBFloat16, 3, 900, 128, 256));
  std::vector<char> first;
  for (int threads : {1, 2, 5}) {
    set_num_threads(threads);
    grouped_gemm(GroupedMode::rows, x, w, o, y, ws.get());
    if (first.empty()) first = y.bits();
    EXPECT_EQ(y.bits(), first);
  }
  set_num_threads(before);
  for (const auto& bad : {std::vector<int64_t>{-1, 2, 3, 4}, {0, 5, 4, 6}, {0, 1, 2, 901}})
    EXPECT_THROW(grouped_gemm(GroupedMode::rows, x, w, offsets_of(bad), y, ws.get()), Error);
}

}  // namespace
}  // namespace weft::kernels
