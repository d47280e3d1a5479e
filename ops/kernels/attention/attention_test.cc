// Tests attention's forward against the dense f64 computation, within bounds derived from the roundoffs: masks, hooks,
// dropout, layouts, splits, and the same bits for any number of threads.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "framework/base/error.h"
#include "framework/base/thread_pool.h"
#include "ops/kernels/testing/attention_cases.h"

namespace weft::kernels {
namespace {

struct Result {
  Array out;
  std::vector<float> lse, max;
};

Result run(const Call& call) {
  const Case& c = call.c;
  Result r{Array(c.type, {c.b, c.hq, c.sq, c.dv}), std::vector<float>(c.b * c.hq * c.sq, 7.0f),
           std::vector<float>(c.b * c.hq * c.sq, 7.0f)};
  Workspace ws(attention_workspace(call.a));
  attention(call.a, r.out, r.lse.data(), r.max.data(), ws.get());
  for (size_t i = 0; i < r.max.size(); ++i) r.lse[i] += r.max[i] *= static_cast<float>(softmax_scale(call.a));
  return r;
}

void expect_near(double got, double want, double bound, const char* what, int64_t i) {
  if (want == kNegInf) {
    EXPECT_EQ(got, want) << what << " " << i;
  } else {
    EXPECT_LE(std::abs(got - want), bound) << what << " " << i << ": " << got << ", want " << want;
  }
}

void check(const Case& c) {
  SCOPED_TRACE(text(c));
  const Call call(c);
  const Result r = run(call);
  const Reference want(call);
  const Bounds bounds(c, want);
  for (int64_t i = 0; i < r.out.size() && !testing::Test::HasFailure(); ++i)
    expect_near(r.out[i], want.out[i], bounds.out(want, i), "out", i);
  for (size_t i = 0; i < r.lse.size() && !testing::Test::HasFailure(); ++i) {
    expect_near(r.lse[i], want.lse[i], bounds.lse, "lse", i);
    expect_near(r.max[i], want.max[i], bounds.max, "max", i);
  }
}

TEST(Attention, MatchesTheDenseComputation) {
  for (const Case& c : dense_cases()) check(c);
}

TEST(Attention, GroupsOfHeadsShareKeys) {
  for (const Case& c : grouped_cases()) check(c);
}

TEST(Attention, MasksByBlocksAndBits) {
  for (const Case& c : masked_cases()) check(c);
}

TEST(Attention, HooksAndDropout) {
  for (const Case& c : hooked_cases()) check(c);
}

TEST(Attention, LongKeysInPieces) {
  for (DType t : kTypes)
    for (Case::Mask mask : {Case::none, Case::blocks})
      for (int64_t hkv : {1, 2})  // three queries read their keys in place, six pack them
        check({.b = 1, .hq = 2, .hkv = hkv, .sq = 3, .skv = 3000, .d = 64, .dv = 72, .type = t, .mask = mask});
}

TEST(Attention, MaskedNanAndInfinityStayOut) {
  for (DType t : kTypes)
    for (int64_t sq : {3, 100})
      for (Case::Mask mask : {Case::fill, Case::blocks}) {
        const int64_t skv = sq == 3 ? 2100 : 200;
        Call call({.b = 1, .hq = 2, .hkv = 2, .sq = sq, .skv = skv, .d = 16, .dv = 8, .type = t, .mask = mask});
        // The bad values are in every fifth key; queries that see it are not compared.
        const double bad[] = {std::numeric_limits<double>::quiet_NaN(), -kNegInf, kNegInf};
        for (int64_t h = 0; h < 2; ++h)
          for (int64_t j = 0; j < skv; j += 5) {
            for (int64_t i = 0; i < sq && mask == Case::fill; ++i) call.bits[(h * sq + i) * skv + j] = 0;
            for (int64_t x = 0; x < 16; ++x) call.k.set((h * skv + j) * 16 + x, bad[j % 3]);
            for (int64_t x = 0; x < 8; ++x) call.v.set((h * skv + j) * 8 + x, bad[x % 3]);
          }
        const Result r = run(call);
        const Reference want(call);
        const Bounds bounds(call.c, want);
        for (int64_t i = 0; i < r.out.size(); ++i)
          if (std::isfinite(want.out[i])) {
            ASSERT_LE(std::abs(r.out[i] - want.out[i]), bounds.out(want, i)) << i;
          }
      }
}

TEST(Attention, VisibleNanReachesTheResult) {
  Call call({.sq = 2, .skv = 40});
  call.v.set(3 * 8 + 2, std::numeric_limits<double>::quiet_NaN());
  const Result r = run(call);
  EXPECT_TRUE(std::isnan(r.out[2]) && std::isnan(r.out[8 + 2]));
  EXPECT_TRUE(std::isfinite(r.out[1]));
}

// Tiles have many rows if there is no mask and there are enough queries.
TEST(Attention, ManyTiles) {
  for (DType t : kTypes)
    for (int64_t hkv : {8, 4})
      check(Case{.b = 4,
                 .hq = 8,
                 .hkv = hkv,
                 .sq = 290,
                 .skv = 70,
                 .d = 8,
                 .dv = 16,
                 .type = t,
                 .dropout = hkv == 4 ? 0.1 : 0});
}

TEST(Attention, NothingToSee) {
  Call call({.b = 2, .hq = 2, .hkv = 1, .sq = 5, .skv = 0});
  const Result r = run(call);
  for (int64_t i = 0; i < r.out.size(); ++i) EXPECT_EQ(r.out[i], 0);
  for (float x : r.lse) EXPECT_EQ(x, kNegInf);
  for (float x : r.max) EXPECT_EQ(x, kNegInf);
  run(Call({.b = 0, .hq = 2, .hkv = 1, .sq = 5, .skv = 5}));
  run(Call({.b = 2, .hq = 2, .hkv = 1, .sq = 0, .skv = 5}));
}

TEST(Attention, SameBitsForAnyNumberOfThreads) {
  const int before = num_threads();
  for (DType t : kTypes)
    for (int n = 0; n < 4; ++n) {
      Case c{.b = 1, .hq = 4, .hkv = 2, .sq = 300, .skv = 300, .d = 32, .dv = 32, .type = t};
      if (n == 1) c.b = 5;                 // one task per head
      if (n == 2) c.sq = 2, c.skv = 2500;  // pieces
      if (n == 3) c.mask = Case::blocks, c.dropout = 0.2;
      const Call call(c);
      set_num_threads(1);
      const Result one = run(call);
      for (int threads : {2, 3}) {
        set_num_threads(threads);
        const Result many = run(call);
        EXPECT_EQ(one.out.bits(), many.out.bits());
        EXPECT_EQ(one.lse, many.lse);
        EXPECT_EQ(one.max, many.max);
      }
    }
  set_num_threads(before);
}

TEST(Attention, BadCallsNameWhatIsWrong) {
  Call call({.b = 1, .hq = 3, .hkv = 3, .sq = 4, .skv = 4});
  Attention a = call.a;
  a.k.shape[1] = 2;
  EXPECT_THROW(attention_workspace(a), Error);
  a = call.a;
  a.v.dtype = kBFloat16;
  EXPECT_THROW(attention_workspace(a), Error);
}

}  // namespace
}  // namespace weft::kernels
