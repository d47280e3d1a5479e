// Tests the tracing of mods: captured tensors become inputs, and ops that a kernel cannot compute are rejected by name.
#include "ops/attention/mods/mod.h"

#include <gtest/gtest.h>

#include "framework/autodiff/grad.h"
#include "framework/base/testing/error_of.h"
#include "framework/dispatch/interpreter.h"
#include "ops/core/core.h"

namespace weft {
namespace {

using testing::expect_error;

Tensor scalar(int64_t i) { return full({}, i, {.dtype = kInt64}); }

TEST(Mod, MaskSeesIndicesAndWhatItClosesOver) {
  const Tensor doc = Tensor::from_vector<int64_t>({0, 0, 1, 1, 1}, {5});
  const MaskMod causal = [](Index, Index, Index q, Index kv) { return q >= kv; };
  const MaskMod same = [&](Index, Index, Index q, Index kv) { return doc[q] == doc[kv]; };
  const Body body = internal::trace_mask((causal & same) | !(causal.shift(0, -3)));
  ASSERT_EQ(body.graph->inputs.size(), 5u);
  ASSERT_EQ(body.lifted.size(), 1u);
  for (int64_t q = 0; q < 5; ++q)
    for (int64_t kv = 0; kv < 5; ++kv) {
      const std::vector<Tensor> in{scalar(0), scalar(0), scalar(q), scalar(kv), body.lifted[0]};
      const bool want = (q >= kv && q / 2 == kv / 2) || (q >= kv && q >= 2 && kv >= 2) || !(q >= kv - 3);
      EXPECT_EQ(interpret(*body.graph, in)[0].item<bool>(), want) << q << " " << kv;
    }
}

TEST(Mod, ScoreSeesValueAndTables) {
  const Tensor slopes = Tensor::from_vector<float>({0.5f, 0.25f}, {2});
  const Tensor table = Tensor::from_vector<float>({1, 2, 3, 4, 5, 6}, {2, 3});
  const Body body =
      internal::trace_score([&](const Score& s) { return s.value + slopes[s.h] * (s.kv - s.q) + table[s.h][s.kv]; });
  ASSERT_EQ(body.lifted.size(), 2u);
  const Tensor out =
      interpret(*body.graph, std::vector<Tensor>{full({}, 10.0, {.dtype = kFloat32}), scalar(0), scalar(1), scalar(3),
                                                 scalar(2), body.lifted[0], body.lifted[1]})[0];
  EXPECT_EQ(out.item<float>(), 10.0f - 0.25f + 6.0f);
}

TEST(Mod, WhatNeedsNoIndexIsComputedOutside) {
  const Tensor bounds = Tensor::from_vector<int64_t>({2, 5, 9}, {3});
  const Tensor logits = Tensor::from_vector<float>({0, 1, 2, 3}, {2, 2}).requires_grad();
  const Body mask = internal::trace_mask(
      [&](Index, Index, Index q, Index kv) { return (q >= bounds[1]) & (kv < sum(bounds)) & ((bounds * 2)[kv] > 0); });
  for (int32_t id = 0; id < mask.graph->size(); ++id) EXPECT_STRNE(mask.graph->node(id).op->name, "slice");
  std::vector<Tensor> in{scalar(0), scalar(0), scalar(7), scalar(1)};
  in.insert(in.end(), mask.lifted.begin(), mask.lifted.end());
  EXPECT_TRUE(interpret(*mask.graph, in)[0].item<bool>());
  in[2] = scalar(4);
  EXPECT_FALSE(interpret(*mask.graph, in)[0].item<bool>());
  // The moved ops are ordinary ones: gradients pass through them.
  const Body score = internal::trace_score([&](const Score& s) { return s.value * exp(logits)[s.h][s.kv]; });
  ASSERT_EQ(score.lifted.size(), 1u);
  const Tensor g = grad(score.lifted[0].sum(), {logits})[0];
  EXPECT_EQ(g.to_vector<float>(), exp(logits).to_vector<float>());
}

TEST(Mod, RefusesWhatNoKernelCouldCompute) {
  const Tensor table = ones({4, 3});
  expect_error([&] { internal::trace_mask([&](Index, Index, Index q, Index) { return sum(table[q]) > 1.0; }); },
               "mask_mod: uses reduce_sum at");
  expect_error([&] { internal::trace_mask([](Index, Index, Index q, Index kv) { return q - kv; }); },
               "mask_mod: returned i64[]; need one bool");
  expect_error([&] { internal::trace_score([&](const Score& s) { return s.value * table[s.h]; }); },
               "score_mod: returned f32[3]; need one floating-point value");
}

}  // namespace
}  // namespace weft
