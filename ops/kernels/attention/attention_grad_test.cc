// Tests attention's backward against the dense f64 derivative, within bounds derived from the roundoffs: masks, hooks,
// dropout, layouts, shared keys, and the same bits for any number of threads.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "framework/base/thread_pool.h"
#include "ops/kernels/testing/attention_cases.h"

namespace weft::kernels {
namespace {

struct Grads {
  Array out, dout, dq, dk, dv;
  std::vector<float> log_sum, max, dlse;
};

Grads run(const Call& call, bool with_dlse = true) {
  const Case& c = call.c;
  auto like = [&](const Array& a) {
    Shape strides = a.view().strides;
    const int64_t by = strides[3];
    if (by != 1)
      for (int i = 0; i < 4; ++i) strides[i] /= by;  // the last stride of gradients stays 1
    return Array(c.type, a.view().shape, strides);
  };
  const Shape out{c.b, c.hq, c.sq, c.dv};
  const Shape odd{c.hq * c.sq * c.dv * 2, c.sq * c.dv * 2, c.dv * 2, 2};
  Grads g{Array(c.type, out),
          Array(c.type, out, c.layout == Case::odd ? odd : contiguous_strides(out)),
          like(call.q),
          like(call.k),
          like(call.v),
          std::vector<float>(c.b * c.hq * c.sq),
          std::vector<float>(c.b * c.hq * c.sq),
          std::vector<float>(with_dlse ? c.b * c.hq * c.sq : 0)};
  g.dout.fill_uniform(c.seed + 5, -1, 1);
  for (size_t i = 0; i < g.dlse.size(); ++i) g.dlse[i] = static_cast<float>(static_cast<int>(i % 7) - 3) / 4;
  {
    Workspace ws(attention_workspace(call.a));
    attention(call.a, g.out, g.log_sum.data(), g.max.data(), ws.get());
  }
  Workspace ws(attention_backward_workspace(call.a));
  AttentionGrad grad{g.out, g.log_sum.data(), g.max.data(), g.dout, with_dlse ? g.dlse.data() : nullptr, g.dq, g.dk,
                     g.dv};
  attention_backward(call.a, grad, ws.get());
  return g;
}

void compare(const Array& got, const std::vector<double>& want, const std::vector<double>& size, const Bounds& bounds,
             const char* what) {
  for (int64_t i = 0; i < got.size() && !testing::Test::HasFailure(); ++i)
    if (std::isfinite(want[i])) {
      EXPECT_LE(std::abs(got[i] - want[i]), bounds.grad(size[i], want[i]))
          << what << " " << i << ": " << got[i] << ", want " << want[i];
    }
}

void check(const Call& call) {
  const Case& c = call.c;
  SCOPED_TRACE(text(c));
  const Grads g = run(call, c.seed % 2);
  const Reference want(call, &g.dout, c.seed % 2 ? &g.dlse : nullptr);
  const Bounds bounds(c, want);
  compare(g.dv, want.dv, want.dv_size, bounds, "dv");
  compare(g.dq, want.dq, want.dq_size, bounds, "dq");
  compare(g.dk, want.dk, want.dk_size, bounds, "dk");
}

TEST(AttentionGrad, MatchesTheDenseDerivative) {
  for (const Case& c : dense_cases()) check(Call(c));
}

TEST(AttentionGrad, GroupsOfHeadsShareKeys) {
  for (const Case& c : grouped_cases()) check(Call(c));
}

TEST(AttentionGrad, MasksByBlocksAndBits) {
  for (const Case& c : masked_cases()) check(Call(c));
}

TEST(AttentionGrad, HooksAndDropout) {
  for (const Case& c : hooked_cases()) check(Call(c));
}

// Keys that some queries do not see, and queries that see nothing.
TEST(AttentionGrad, MaskedNanAndInfinityStayOut) {
  const double bad[] = {std::numeric_limits<double>::quiet_NaN(), -kNegInf, kNegInf};
  for (DType t : kTypes)
    for (Case::Mask mask : {Case::fill, Case::blocks}) {
      Call call({.b = 1, .hq = 2, .hkv = 2, .sq = 100, .skv = 200, .d = 16, .dv = 8, .type = t, .mask = mask});
      for (int64_t h = 0; h < 2; ++h)
        for (int64_t j = 0; j < 200; j += 5) {
          bool seen = false;
          for (int64_t i = 0; i < 100; ++i) {
            if (mask == Case::fill) call.bits[(h * 100 + i) * 200 + j] = 0;
            seen |= call.visible(0, h, i, j);
          }
          if (seen) continue;
          for (int64_t x = 0; x < 16; ++x) call.k.set((h * 200 + j) * 16 + x, bad[j % 3]);
          for (int64_t x = 0; x < 8; ++x) call.v.set((h * 200 + j) * 8 + x, bad[x % 3]);
        }
      for (int64_t i = 0; i < 200; ++i) {
        bool sees = false;
        for (int64_t j = 0; j < 200; ++j) sees |= call.visible(0, i / 100, i % 100, j) != 0;
        for (int64_t x = 0; x < 16 && !sees; ++x) call.q.set(i * 16 + x, bad[x % 3]);
      }
      check(call);
      const Grads g = run(call);
      for (int64_t i = 0; i < g.dv.size(); ++i) ASSERT_TRUE(std::isfinite(g.dv[i])) << i;
      for (int64_t i = 0; i < g.dq.size(); ++i) ASSERT_TRUE(std::isfinite(g.dq[i])) << i;
      for (int64_t i = 0; i < g.dk.size(); ++i) ASSERT_TRUE(std::isfinite(g.dk[i])) << i;
    }
}

// A hook's results for masked scores do not reach the hook's own gradients.
TEST(AttentionGrad, HooksMeetZerosWhereMasked) {
  Call call({.b = 1, .hq = 1, .hkv = 1, .sq = 40, .skv = 70, .d = 8, .dv = 8, .mask = Case::fill});
  for (int64_t i = 0; i < 40; ++i) call.bits[i * 70 + 33] = 0;
  for (int64_t x = 0; x < 8; ++x) call.k.set(33 * 8 + x, std::numeric_limits<double>::quiet_NaN());
  const ScoreHook hook{[](const void*, const ScoreTile&, float*) {},
                       [](const void* context, const ScoreTile& t, const float* raw, float* grad) {
                         const Call& c = *static_cast<const Call*>(context);
                         for (int64_t i = 0; i < t.rows; ++i)
                           for (int64_t j = 0; j < t.cols; ++j) {
                             if (c.visible(0, 0, t.q0 + i, t.kv0 + j)) continue;
                             EXPECT_EQ(raw[i * t.ld + j], 0);
                             EXPECT_EQ(grad[i * t.ld + j], 0);
                           }
                       },
                       &call};
  call.a.score = &hook;
  run(call);
}

// Tiles have many rows if there is no mask and there are enough queries.
TEST(AttentionGrad, ManyTiles) {
  for (DType t : kTypes)
    for (int64_t hkv : {8, 4})
      check(Call(Case{.b = 4,
                      .hq = 8,
                      .hkv = hkv,
                      .sq = 290,
                      .skv = 70,
                      .d = 8,
                      .dv = 16,
                      .type = t,
                      .dropout = hkv == 4 ? 0.1 : 0}));
}

TEST(AttentionGrad, NothingToSee) {
  const Grads g = run(Call({.b = 2, .hq = 2, .hkv = 1, .sq = 5, .skv = 0}));
  for (int64_t i = 0; i < g.dq.size(); ++i) EXPECT_EQ(g.dq[i], 0);
  const Grads h = run(Call({.b = 2, .hq = 2, .hkv = 1, .sq = 0, .skv = 5}));
  for (int64_t i = 0; i < h.dk.size(); ++i) EXPECT_EQ(h.dk[i], 0);
  for (int64_t i = 0; i < h.dv.size(); ++i) EXPECT_EQ(h.dv[i], 0);
  run(Call({.b = 0, .hq = 2, .hkv = 1, .sq = 5, .skv = 5}));
}

TEST(AttentionGrad, SameBitsForAnyNumberOfThreads) {
  const int before = num_threads();
  for (DType t : kTypes)
    for (int n = 0; n < 3; ++n) {
      Case c{.b = 1, .hq = 4, .hkv = 2, .sq = 300, .skv = 500, .d = 32, .dv = 32, .type = t};
      if (n == 1) c.b = 5;  // one task per head
      if (n == 2) c.mask = Case::blocks, c.dropout = 0.2;
      const Call call(c);
      set_num_threads(1);
      const Grads one = run(call);
      for (int threads : {2, 3}) {
        set_num_threads(threads);
        const Grads many = run(call);
        EXPECT_EQ(one.dq.bits(), many.dq.bits());
        EXPECT_EQ(one.dk.bits(), many.dk.bits());
        EXPECT_EQ(one.dv.bits(), many.dv.bits());
      }
    }
  set_num_threads(before);
}

// The tiles of a task are in range and cover each visible point once.
TEST(AttentionGrad, HooksSeeEachTileOfATaskOnce) {
  struct Seen {
    int64_t tasks;
    std::vector<char> points;
  } seen;
  Call call({.b = 1, .hq = 2, .hkv = 1, .sq = 150, .skv = 700, .d = 8, .dv = 8});
  seen.tasks = attention_tasks(call.a);
  seen.points.resize(2 * 150 * 700);
  const ScoreHook hook{[](const void*, const ScoreTile&, float*) {},
                       [](const void* context, const ScoreTile& t, const float*, float*) {
                         Seen& s = *static_cast<Seen*>(const_cast<void*>(context));
                         EXPECT_TRUE(t.task >= 0 && t.task < s.tasks);
                         for (int64_t i = 0; i < t.rows; ++i)
                           for (int64_t j = 0; j < t.cols; ++j) ++s.points[(t.head * 150 + t.q0 + i) * 700 + t.kv0 + j];
                       },
                       &seen};
  call.a.score = &hook;
  run(call);
  EXPECT_EQ(seen.points, std::vector<char>(seen.points.size(), 1));
}

}  // namespace
}  // namespace weft::kernels
