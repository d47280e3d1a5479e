// Tests hooks of products: filled operands, epilogues and strided results give the bits of the plain product, for any
// thread count; also edges, unaligned operands and values that are not finite.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "framework/base/error.h"
#include "framework/base/thread_pool.h"
#include "ops/kernels/kernels.h"
#include "ops/kernels/products/gemm.h"
#include "ops/kernels/testing/test_arrays.h"

namespace weft::kernels {
namespace {

struct Size {
  int64_t batch, m, n, k;
};
const Size kSizes[] = {{1, 1, 1, 1},      {1, 8, 8, 8},       {2, 3, 50, 70},    {5, 40, 24, 33}, {1, 257, 300, 40},
                       {3, 64, 96, 64},   {1, 129, 513, 600}, {2, 520, 40, 520}, {1, 700, 1, 90}, {2, 20, 300, 90},
                       {1, 33, 65, 1100}, {2, 530, 1024, 9},  {1, 4, 40, 30000}};

Array random(DType t, const Shape& shape, uint64_t seed) {
  Array a(t, shape);
  a.fill_uniform(seed, -1, 1);
  return a;
}

Array product(const StridedView& a, const StridedView& b, DType out, const GemmHooks* hooks = nullptr) {
  const int64_t batch = a.shape[0], m = a.shape[1], k = a.shape[2], n = b.shape[2];
  Array c(out, {batch, m, n});
  GemmFilled filled;
  if (hooks && hooks->a) filled.a = hooks->a->cost;
  if (hooks && hooks->b) filled.b = hooks->b->cost;
  Workspace ws(gemm_workspace(a.dtype, out, batch, m, n, k, filled));
  gemm(a, b, c, ws.get(), hooks);
  return c;
}

void fill_from(const void* context, int64_t batch, int64_t row, int64_t col, int64_t rows, int64_t cols, void* out,
               int64_t ld) {
  const StridedView& v = *static_cast<const StridedView*>(context);
  ASSERT_TRUE(row >= 0 && row + rows <= v.shape[1] && col >= 0 && col + cols <= v.shape[2] && ld >= cols);
  StridedView part = v;
  part.data =
      static_cast<char*>(v.data) + (batch * v.strides[0] + row * v.strides[1] + col * v.strides[2]) * itemsize(v.dtype);
  part.shape = {rows, cols};
  part.strides = {v.strides[1], v.strides[2]};
  cast_copy(part, {out, v.dtype, {rows, cols}, {ld, 1}});
}

void fill_transposed(const void* context, int64_t batch, int64_t row, int64_t col, int64_t rows, int64_t cols,
                     void* out, int64_t ld) {
  StridedView v = *static_cast<const StridedView*>(context);
  std::swap(v.shape[1], v.shape[2]);
  std::swap(v.strides[1], v.strides[2]);
  fill_from(&v, batch, col, row, cols, rows, out, ld);
}

// Collects tiles; each element must come once.
struct Collected {
  int64_t m, n;
  mutable std::vector<float> sums;
  mutable std::vector<char> times;
  GemmEpilogue::Touch touch;
  Collected(int64_t batch, int64_t m_, int64_t n_)
      : m(m_), n(n_), sums(batch * m * n), times(batch * m * n), touch{sums.data(), n * 4, 4} {}
  GemmEpilogue epilogue() const { return {&take, this, &touch, 1}; }
  static void take(const void* context, const GemmTile& t) {
    const auto& c = *static_cast<const Collected*>(context);
    for (int64_t i = 0; i < t.rows; ++i)
      for (int64_t j = 0; j < t.cols; ++j) {
        const int64_t at = (t.batch * c.m + t.row + i) * c.n + t.col + j;
        c.sums[at] = t.data[i * t.ld + j];
        ++c.times[at];  // tiles are disjoint: no race
      }
  }
};

bool same_bits(const std::vector<float>& a, const Array& b) {
  const auto bits = b.bits();
  return bits.size() == a.size() * 4 && std::memcmp(a.data(), bits.data(), bits.size()) == 0;
}

TEST(GemmHooks, FillsAndEpilogueGiveTheBitsOfThePlainProduct) {
  const int before = num_threads();
  for (DType t : {kFloat32, kBFloat16, kFloat16})
    for (const Size& s : kSizes) {
      const Array a = random(t, {s.batch, s.m, s.k}, 1), b = random(t, {s.batch, s.k, s.n}, 2);
      const Array want = product(a, b, kFloat32);
      const GemmFill fill_a{&fill_from, &a.view()}, fill_b{&fill_from, &b.view()};
      const GemmFill transposed_a{&fill_transposed, &a.view(), true, 4},
          transposed_b{&fill_transposed, &b.view(), true, 4};
      for (int hooked = 1; hooked < 8; ++hooked)
        for (int threads : {1, 3}) {
          // A filled matrix of four rows or of one column is packed, and its sums may have another order.
          if ((s.m <= 4 && (hooked & 2)) || (s.n == 1 && (hooked & 1))) continue;
          if (s.m * s.n > 500000 && hooked != 4) continue;  // large results are written in another way
          set_num_threads(threads);
          const Collected got(s.batch, s.m, s.n);
          const GemmEpilogue epilogue = got.epilogue();
          const bool transposed = threads == 3;
          const GemmHooks hooks{hooked & 4 ? &epilogue : nullptr,
                                hooked & 1 ? transposed ? &transposed_a : &fill_a : nullptr,
                                hooked & 2 ? transposed ? &transposed_b : &fill_b : nullptr};
          StridedView va = a, vb = b;
          if (hooked & 1) va.data = nullptr;
          if (hooked & 2) vb.data = nullptr;
          const Array c = product(va, vb, kFloat32, &hooks);
          if (hooked & 4) {
            EXPECT_EQ(got.times, std::vector<char>(got.times.size(), 1));
            EXPECT_TRUE(same_bits(got.sums, want))
                << to_string_view(t) << " " << s.m << " " << s.n << " " << s.k << " " << hooked;
          } else {
            EXPECT_EQ(c.bits(), want.bits())
                << to_string_view(t) << " " << s.m << " " << s.n << " " << s.k << " " << hooked;
          }
        }
    }
  set_num_threads(before);
}

// The first m rows of each matrix.
StridedView first_rows(const Array& a, int64_t m) {
  StridedView v = a;
  v.shape[1] = m;
  return v;
}

// Columns of a block, of less than one vector and of several strips; k below and above one block, with and without a
// rest.
const Size kFewRows[] = {{1, 33, 50, 40}, {1, 33, 131, 333}, {1, 33, 200, 1297}, {1, 33, 1100, 128}, {2, 33, 7, 3000}};

TEST(FewRows, HaveTheBitsOfARowAloneWithEpilogueAndFill) {
  const int before = num_threads();
  for (DType t : {kFloat32, kBFloat16, kFloat16})
    for (const Size& s : kFewRows)
      for (const bool column_major : {false, true}) {
        const Array a = random(t, {s.batch, s.m, s.k}, 1);
        Array b(t, {s.batch, s.k, s.n}, column_major ? Shape{s.n * s.k, 1, s.k} : Shape{s.n * s.k, s.n, 1});
        b.fill_uniform(2, -1, 1);
        std::vector<std::vector<float>> alone;  // indices: batch entry and row
        for (int64_t row = 0; row < s.batch * s.m; ++row) {
          StridedView x = first_rows(a, 1), y = b;
          x.shape[0] = y.shape[0] = 1;
          x.data = static_cast<char*>(x.data) + row * s.k * itemsize(t);
          y.data = static_cast<char*>(y.data) + row / s.m * s.n * s.k * itemsize(t);
          const Array c = product(x, y, kFloat32);
          alone.emplace_back(s.n);
          for (int64_t j = 0; j < s.n; ++j) alone.back()[j] = static_cast<float>(c[j]);
          for (int64_t j = row % 7; j < s.n; j += 61) {
            double sum = 0, absolute = 0;
            for (int64_t i = 0; i < s.k; ++i) {
              const double term = a[row * s.k + i] * b[(row / s.m * s.k + i) * s.n + j];
              sum += term, absolute += std::fabs(term);
            }
            ASSERT_LE(std::fabs(alone.back()[j] - sum), (s.k + 2) * 0x1p-24 * absolute) << row << " " << j;
          }
        }
        for (int64_t m = 1; m <= std::min(s.m, gemm_few_rows(t, s.k)); ++m) {
          std::vector<float> want;
          for (int64_t row = 0; row < s.batch * m; ++row) {
            const std::vector<float>& one = alone[row / m * s.m + row % m];
            want.insert(want.end(), one.begin(), one.end());
          }
          const StridedView x = first_rows(a, m);
          set_num_threads(m % 2 ? 1 : 3);
          for (int hooked = 0; hooked < 6; ++hooked) {
            const Collected got(s.batch, m, s.n);
            const GemmEpilogue epilogue = got.epilogue();
            const GemmFill rows{&fill_from, &x}, columns{&fill_transposed, &x, true};
            const GemmHooks hooks{hooked & 1 ? &epilogue : nullptr, hooked < 2   ? nullptr
                                                                    : hooked < 4 ? &rows
                                                                                 : &columns};
            StridedView from = x;
            if (hooks.a) from.data = nullptr;
            const Array c = product(from, b, kFloat32, &hooks);
            SCOPED_TRACE(testing::Message() << to_string_view(t) << " " << m << " rows of " << s.n << " x " << s.k
                                            << (column_major ? " column-major " : " row-major ") << hooked);
            if (hooks.epilogue) {
              ASSERT_EQ(got.times, std::vector<char>(got.times.size(), 1));
              ASSERT_EQ(std::memcmp(got.sums.data(), want.data(), want.size() * 4), 0);
            } else {
              ASSERT_TRUE(same_bits(want, c));
            }
          }
          const Array narrow = product(x, b, t);
          for (int64_t i = 0; i < narrow.size(); i += 17) {
            Array rounded(t, {1});
            rounded.set(0, want[i]);
            ASSERT_EQ(narrow[i], rounded[0]) << m << " " << i;
          }
        }
      }
  set_num_threads(before);
  EXPECT_EQ(gemm_few_rows(kFloat32, 128), 16);
  EXPECT_EQ(gemm_few_rows(kFloat32, 127), 4);
}

// The memory of b is not read.
TEST(GemmHooks, PanelsGiveTheBitsOfRowMajorMemory) {
  const int64_t columns = gemm_panel(kFloat32), n = 3 * columns, k = 200;
  const Array b = random(kFloat32, {1, k, n}, 2), panels(kFloat32, {n / columns, k, columns});
  for (int64_t i = 0; i < k * n; ++i)
    panels.view().as<float>()[(i % n / columns * k + i / n) * columns + i % columns] = b.view().as<float>()[i];
  GemmHooks hooks;
  hooks.panels = panels.view().data;
  StridedView absent = b;
  absent.data = nullptr;
  for (int64_t m : {5, 16, 17, 100}) {
    const Array a = random(kFloat32, {1, m, k}, 1);
    const Array want = product(a, b, kFloat32), got = product(a, absent, kFloat32, &hooks);
    EXPECT_EQ(std::memcmp(got.view().data, want.view().data, m * n * 4), 0) << m;
  }
}

TEST(GemmHooks, SumsThatGoOnGiveTheBitsOfTheWholeProduct) {
  for (DType t : {kFloat32, kBFloat16, kFloat16})
    for (const Size& s :
         {Size{1, 40, 50, 200}, Size{2, 130, 33, 640}, Size{1, 700, 96, 1500}, Size{1, 129, 513, 601}}) {
      const Array a = random(t, {s.batch, s.m, s.k}, 1), b = random(t, {s.batch, s.k, s.n}, 2);
      const Array want = product(a, b, kFloat32);
      Array c(kFloat32, {s.batch, s.m, s.n});
      constexpr int64_t kPiece = 192;
      for (int64_t first = 0; first < s.k; first += kPiece) {
        const int64_t k = std::min(kPiece, s.k - first);
        StridedView va = a, vb = b;
        va.shape[2] = vb.shape[1] = k;
        va.data = static_cast<char*>(va.data) + first * va.strides[2] * itemsize(t);
        vb.data = static_cast<char*>(vb.data) + first * vb.strides[1] * itemsize(t);
        Workspace ws(gemm_workspace(t, kFloat32, s.batch, s.m, s.n, k));
        const GemmHooks hooks{.add = first > 0};
        gemm(va, vb, c, ws.get(), &hooks);
      }
      EXPECT_EQ(c.bits(), want.bits()) << to_string_view(t) << " " << s.m << " " << s.n << " " << s.k;
    }
  const Array a = random(kFloat32, {1, 8, 8}, 1);
  const Collected got(1, 8, 8);
  const GemmEpilogue epilogue = got.epilogue();
  const GemmHooks both{.epilogue = &epilogue, .add = true}, add{.add = true};
  EXPECT_THROW(product(a, a, kFloat32, &both), Error);
  const Array h = random(kBFloat16, {1, 8, 8}, 1);
  EXPECT_THROW(product(h, h, kBFloat16, &add), Error);
}

TEST(GemmHooks, ResultsGoToSlicesAndInterleavedHeads) {
  for (DType t : {kFloat32, kBFloat16, kFloat64})
    for (const Size& s : {Size{3, 70, 40, 50}, Size{2, 3, 70, 90}, Size{2, 70, 1, 90}}) {
      const Array a = random(t, {s.batch, s.m, s.k}, 1), b = random(t, {s.batch, s.k, s.n}, 2);
      const Array want = product(a, b, t);
      Array c(t, {s.batch, s.m, s.n}, {s.n + 8, s.batch * (s.n + 8), 1});
      const auto outside = [&] { return get_element(static_cast<char*>(c.view().data) + s.n * itemsize(t), t); };
      const double before = outside();
      Workspace ws(gemm_workspace(t, t, s.batch, s.m, s.n, s.k));
      gemm(a, b, c, ws.get());
      EXPECT_EQ(c.bits(), want.bits());
      EXPECT_EQ(outside(), before);
    }
}

TEST(GemmHooks, NothingToSum) {
  const Collected got(2, 5, 300);
  const GemmEpilogue epilogue = got.epilogue();
  const GemmHooks hooks{&epilogue, nullptr, nullptr};
  product(Array(kFloat32, {2, 5, 0}), Array(kFloat32, {2, 0, 300}), kFloat32, &hooks);
  EXPECT_EQ(got.sums, std::vector<float>(3000, 0.0f));
  EXPECT_EQ(got.times, std::vector<char>(3000, 1));
  const Array a(kInt64, {1, 2, 3}), b(kInt64, {1, 3, 2});
  EXPECT_THROW(product(a, b, kInt64, &hooks), Error);
}

TEST(Gemm, UnalignedOperandsGiveTheSameBits) {
  for (DType t : {kFloat32, kBFloat16}) {
    const Array a = random(t, {1, 96, 128}, 1), b = random(t, {1, 128, 64}, 2);
    const Array want = product(a, b, t);
    std::vector<char> moved(a.size() * itemsize(t) + 2 * itemsize(t));
    std::memcpy(moved.data() + itemsize(t), a.view().data, a.size() * itemsize(t));
    StridedView va = a;
    va.data = moved.data() + itemsize(t);
    EXPECT_EQ(product(va, b, t).bits(), want.bits());
  }
}

TEST(Gemm, ValuesThatAreNotFiniteStayInTheirRowsAndColumns) {
  const double inf = std::numeric_limits<double>::infinity();
  for (DType t : {kFloat32, kBFloat16, kFloat16})
    for (int64_t k : {5, 64, 700}) {
      Array a = random(t, {1, 40, k}, 1), b = random(t, {1, k, 50}, 2);
      a.set(7 * k + k / 2, inf);
      b.set(k / 3 * 50 + 9, std::numeric_limits<double>::quiet_NaN());
      const Array c = product(a, b, t);
      for (int64_t i = 0; i < 40; ++i)
        for (int64_t j = 0; j < 50; ++j) {
          const double v = c[i * 50 + j];
          EXPECT_EQ(std::isnan(v), j == 9) << i << " " << j;
          EXPECT_EQ(std::isinf(v), i == 7 && j != 9) << i << " " << j;
        }
    }
}

TEST(GroupedGemm, EpilogueTakesTheRowsOfGroups) {
  for (DType t : {kFloat32, kBFloat16}) {
    const int64_t rows = 700, k = 70, n = 300;
    const Array x = random(t, {rows, k}, 1), w = random(t, {4, k, n}, 2);
    Array y(kFloat32, {rows, n}), offsets(kInt64, {5});
    const int64_t edges[] = {3, 40, 40, 600, 690};
    for (int i = 0; i < 5; ++i) offsets.set(i, static_cast<double>(edges[i]));
    Workspace ws(grouped_gemm_workspace(GroupedMode::rows, t, kFloat32, 4, rows, k, n));
    grouped_gemm(GroupedMode::rows, x, w, offsets, y, ws.get());
    struct Grouped {
      Array* got;
      const int64_t* edges;
    };
    Array got(kFloat32, {rows, n});
    fill(got, 0);
    const Grouped context{&got, edges};
    const GemmEpilogue epilogue{
        [](const void* c, const GemmTile& tile) {
          const auto& g = *static_cast<const Grouped*>(c);
          ASSERT_TRUE(tile.row >= g.edges[tile.batch] && tile.row + tile.rows <= g.edges[tile.batch + 1]);
          for (int64_t i = 0; i < tile.rows; ++i)
            std::memcpy(g.got->address((tile.row + i) * 300 + tile.col), tile.data + i * tile.ld, tile.cols * 4);
        },
        &context};
    StridedView nowhere = y;
    nowhere.data = nullptr;
    grouped_gemm(GroupedMode::rows, x, w, offsets, nowhere, ws.get(), &epilogue);
    EXPECT_EQ(got.bits(), y.bits());
  }
}

}  // namespace
}  // namespace weft::kernels
