// Graphs of integers at the edges of their ranges: the same results in 32 bits, and 64 bits where 32 are too few.
#include "compiler/targets/cpu/mods/narrow_indices.h"

#include <gtest/gtest.h>

#include "framework/dispatch/capture.h"
#include "framework/dispatch/interpreter.h"
#include "framework/testing/compare.h"
#include "ops/core/core.h"

namespace weft::internal {
namespace {

using testing::same_bits;
using Args = std::span<const Tensor>;

constexpr int64_t kMost = int64_t{1} << 30;

/// The number of i64 values with lanes in the narrowed graph, and whether results are the same at both ends of inputs
/// in [0, kMost).
int wide_values(const TensorFn& fn) {
  const TensorType number{kInt64, Device::cpu(), {}};
  const Ref<Graph> g = capture_graph(fn, std::vector<TensorType>{number, number});
  const MaskRange range = MaskRange::between(0, kMost - 1);
  const Ref<Graph> n = narrow_indices(*g, std::vector<MaskRange>{range, range});
  for (int64_t a : {int64_t{0}, int64_t{77}, kMost - 1})
    for (int64_t b : {int64_t{0}, int64_t{1234567}, kMost - 1}) {
      NoGrad guard;
      const std::vector<Tensor> in{full({}, a, {.dtype = kInt64}), full({}, b, {.dtype = kInt64})};
      const std::vector<Tensor> want = interpret(*g, in), got = interpret(*n, in);
      for (size_t i = 0; i < want.size(); ++i)
        EXPECT_TRUE(same_bits(got[i], want[i])) << a << " " << b << "\n" << n->to_string();
    }
  int count = 0;
  for (int32_t id = 0; id < n->size(); ++id)
    count += n->node(id).outputs[0].dtype == kInt64 && n->node(id).outputs[0].shape.numel() > 1;
  return count;
}

Tensor lanes() { return arange(40, {.dtype = kInt64}); }

TEST(NarrowIndices, DistancesAreComputedIn32Bits) {
  EXPECT_EQ(wide_values([](Args x) { return std::vector{((lanes() + x[0]) - x[1]).to(kFloat32)}; }), 0);
  EXPECT_EQ(wide_values([](Args x) { return std::vector{ge(lanes() + x[0], x[1])}; }), 0);
  EXPECT_EQ(wide_values([](Args x) { return std::vector{abs(lanes() - x[1]).to(kFloat64)}; }), 0);
  EXPECT_EQ(wide_values([](Args x) { return std::vector{minimum(maximum(lanes() - x[0], -5), 5).to(kFloat32)}; }), 0);
  EXPECT_EQ(wide_values([](Args x) { return std::vector{remainder(lanes() + x[0], 7).to(kFloat32)}; }), 0);
  EXPECT_EQ(wide_values([](Args x) {
              return std::vector{where(lt(lanes(), x[0]), lanes() - x[1], x[1] - lanes()).to(kFloat32)};
            }),
            0);
}

TEST(NarrowIndices, OneNumberKeptInsideBoundsIsConvertedOnce) {
  EXPECT_EQ(wide_values([](Args x) {
              const Tensor offset = minimum(maximum(x[0] * x[1], 0), 4095);  // may be anything before
              return std::vector{(lanes() + offset - x[1]).to(kFloat32)};
            }),
            0);
}

TEST(NarrowIndices, ResultsKeepTheirTypes) {
  EXPECT_EQ(wide_values([](Args x) { return std::vector{lanes() + x[0] - x[1]}; }), 1);  // the result itself
}

TEST(NarrowIndices, WhatMayOverflowStaysIn64Bits) {
  EXPECT_GT(wide_values([](Args x) { return std::vector{((lanes() + x[0]) * 1000).to(kFloat64)}; }), 0);
  EXPECT_GT(wide_values([](Args x) { return std::vector{((lanes() + x[0]) * (lanes() + x[1])).to(kFloat64)}; }), 0);
  EXPECT_GT(wide_values([](Args x) { return std::vector{gt(lanes() + x[0] + x[1] + x[0], int64_t{1} << 31)}; }), 0);
  // Products that are first too large, then small again.
  EXPECT_GT(wide_values([](Args x) { return std::vector{floor_divide((lanes() + x[0]) * 64, 64).to(kFloat32)}; }), 0);
  EXPECT_GT(
      wide_values([](Args x) { return std::vector{shift_right(shift_left(lanes() + x[0], 20), 20).to(kFloat32)}; }), 0);
}

}  // namespace
}  // namespace weft::internal
