// Tests copies, conversions, fill and iota.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "framework/base/error.h"
#include "framework/base/thread_pool.h"
#include "ops/kernels/kernels.h"
#include "ops/kernels/testing/test_arrays.h"

namespace weft::kernels {
namespace {

constexpr DType kEvery[] = {kFloat32, kFloat64, kBFloat16, kFloat16, kInt64,      kInt32,
                            kInt16,   kInt8,    kUInt8,    kBool,    kFloat8E4M3, kFloat8E5M2};

// The value that PyTorch stores for a value read from `from`: 16-bit and 8-bit floats are written from f32.
double converted(double v, DType to) {
  alignas(8) char raw[8];
  set_element(raw, to, v);
  return get_element(raw, to);
}

TEST(Cast, EveryPairOfDtypesInSeveralLayouts) {
  for (DType from : kEvery)
    for (DType to : kEvery) {
      const Shape shape{3, 5, 43};
      Array in(from, shape);
      in.fill_with([&](int64_t i) { return from == kBool || from == kUInt8 ? i % 120 : (i % 241 - 120) * 0.73; });
      Array out(to, shape);
      cast_copy(in, out);
      for (int64_t i = 0; i < in.size(); ++i)
        ASSERT_EQ(out[i], converted(in[i], to))
            << to_string_view(from) << " to " << to_string_view(to) << " of " << in[i];
      const auto want = out.bits();
      for (const Shape& strides : {Shape{1, 3, 15}, Shape{430, 86, 2}, Shape{43, 129, 1}, Shape{5, 1, 15}}) {
        const Array moved = in.with_strides(strides);
        cast_copy(moved, out);
        EXPECT_EQ(out.bits(), want);
        Array to_moved(to, shape, strides);
        cast_copy(in, to_moved);
        EXPECT_EQ(to_moved.bits(), want);
      }
    }
}

TEST(Cast, SpecialValues) {
  const float specials[] = {NAN,      INFINITY, -INFINITY, 0.0f,  -0.0f, 1e-40f,
                            65504.0f, 65519.0f, 65520.0f,  1e38f, 6e-8f, 2.9e-8f};
  for (float v : specials)
    for (DType t : {kBFloat16, kFloat16, kFloat8E4M3, kFloat8E5M2}) {
      alignas(8) char raw[8];
      float back;
      cast_copy({const_cast<float*>(&v), kFloat32, {}, {}}, {raw, t, {}, {}});
      cast_copy({raw, t, {}, {}}, {&back, kFloat32, {}, {}});
      const double want = converted(v, t);
      if (std::isnan(want)) {
        EXPECT_TRUE(std::isnan(back)) << v << " " << to_string_view(t);
      } else {
        EXPECT_EQ(back, want) << v << " " << to_string_view(t);
        EXPECT_EQ(std::signbit(back), std::signbit(want));
      }
    }
  float nan = NAN;
  bool truth = false;
  cast_copy({&nan, kFloat32, {}, {}}, {&truth, kBool, {}, {}});
  EXPECT_TRUE(truth);
}

// All 16-bit floats come back unchanged, and rounding is to nearest even halfway between two of them.
TEST(Cast, SixteenBitFloatsRoundTrip) {
  for (DType t : {kBFloat16, kFloat16}) {
    std::vector<uint16_t> h(65536), back(65536);
    std::vector<float> f(65536);
    for (int i = 0; i < 65536; ++i) h[i] = static_cast<uint16_t>(i);
    cast_copy({h.data(), t, {65536}, {1}}, {f.data(), kFloat32, {65536}, {1}});
    cast_copy({f.data(), kFloat32, {65536}, {1}}, {back.data(), t, {65536}, {1}});
    for (int i = 0; i < 65536; ++i) {
      if (std::isnan(f[i])) continue;
      ASSERT_EQ(back[i], h[i]);
    }
    std::vector<float> half;
    for (int i = 0; i + 1 < 0x7c00; ++i) half.push_back((f[i] + f[i + 1]) / 2);
    const int64_t n = half.size();
    cast_copy({half.data(), kFloat32, {n}, {1}}, {back.data(), t, {n}, {1}});
    for (int64_t i = 0; i < n; ++i) ASSERT_EQ(back[i], i + (i & 1)) << half[i];
  }
}

TEST(Cast, LargeTransposesForAnyThreadCount) {
  Array in(kFloat32, {517, 1030});
  in.fill_with([](int64_t i) { return i; });
  const Array t = in.with_strides({1, 517});
  const int before = num_threads();
  for (int threads : {1, 2, 5}) {
    set_num_threads(threads);
    Array out(kFloat32, {517, 1030}), half(kBFloat16, {517, 1030});
    cast_copy(t, out);
    EXPECT_EQ(out.bits(), in.bits());
    cast_copy(t, half);
    for (int64_t i = 0; i < in.size(); i += 97) ASSERT_EQ(half[i], converted(in[i], kBFloat16));
  }
  set_num_threads(before);
}

TEST(Cast, NegativeStridesAndScalars) {
  Array in(kInt64, {100});
  in.fill_with([](int64_t i) { return i; });
  Array out(kFloat32, {100});
  cast_copy({in.address(99), kInt64, {100}, {-1}}, out);
  for (int64_t i = 0; i < 100; ++i) EXPECT_EQ(out[i], 99 - i);
  cast_copy({in.address(7), kInt64, {}, {}}, out);
  for (int64_t i = 0; i < 100; ++i) EXPECT_EQ(out[i], 7);
  Array empty(kFloat32, {0, 3});
  cast_copy(empty, empty);
}

TEST(Cast, FillAndIota) {
  for (DType t : kEvery) {
    Array a(t, {7, 9}, {1, 7});
    fill(a, 3);
    for (int64_t i = 0; i < a.size(); ++i) ASSERT_EQ(a[i], t == kBool ? 1 : 3);
  }
  Array big(kInt64, {3});
  fill_int(big, (int64_t{1} << 53) + 1);
  EXPECT_EQ(*static_cast<int64_t*>(big.address(2)), (int64_t{1} << 53) + 1);
  Array f(kFloat32, {1000}), n(kInt64, {70000}), h(kBFloat16, {20}, {2});
  iota(f, 0.5, 0.25);
  iota(n, -5, 3);
  iota(h, 1, -1);
  for (int64_t i = 0; i < 1000; ++i) ASSERT_EQ(f[i], 0.5 + 0.25 * i);
  for (int64_t i = 0; i < 70000; ++i) ASSERT_EQ(n[i], -5 + 3 * i);
  for (int64_t i = 0; i < 20; ++i) ASSERT_EQ(h[i], 1 - i);
  EXPECT_THROW(iota(Array(kFloat32, {2, 2}), 0, 1), Error);
}

}  // namespace
}  // namespace weft::kernels
