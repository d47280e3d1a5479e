// Attention on shards with generated score_mods: other offsets, other numbers of ranks and other layouts compile
// nothing, and positions of the whole use as few bits as positions of a part.
#include <gtest/gtest.h>

#include <optional>

#include "compiler/exec/compile.h"
#include "framework/autodiff/grad.h"
#include "framework/dispatch/state/generator.h"
#include "framework/testing/compare.h"
#include "framework/testing/values.h"
#include "ops/attention/flex_attention.h"
#include "ops/attention/mods/relocate.h"
#include "ops/core/core.h"

namespace weft {
namespace {

using testing::Random;
using testing::random_tensor;

TEST(AttentionOnShards, OffsetsAndRanksCompileNothing) {
  Random random(3);
  const int64_t n = 512;
  const Tensor x = random_tensor(kFloat32, {1, 4, n, 16}, random),
               slopes = random_tensor(kFloat32, {4}, random, 0.01, 0.1);
  const internal::AttentionCall call =
      internal::attention_call(x, x, x,
                               {.score_mod = [&](const Score& c) { return c.value + slopes[c.h] * (c.kv - c.q); },
                                .mask_mod = [](Index, Index, Index i, Index j) { return i >= j; }});
  auto step = compile([&](const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& q0, const Tensor& k0) {
    std::vector<Tensor> in = call.operands;
    in[0] = q, in[1] = k, in[2] = v;
    const ShardMaps maps{.q = {.offset = q0, .extent = n}, .kv = {.offset = k0, .extent = n}};
    const std::vector<Tensor> f = attention_on_shard(call.attrs, in, maps);
    for (const Tensor& t : {f[0], f[1], f[2], f[0], zeros(f[1].shape())}) in.push_back(t);
    std::vector<Tensor> r = attention_backward_on_shard(call.attrs, in, maps);
    r.push_back(f[0]);
    return r;
  });
  auto run = [&](int64_t ranks) {
    const int64_t own = n / ranks;
    for (int64_t r = 0; r < ranks; ++r)
      for (int64_t s : {int64_t{0}, r}) {
        const Tensor q = slice(x, 2, r * own, (r + 1) * own).contiguous(),
                     k = slice(x, 2, s * own, (s + 1) * own).contiguous();
        step(q, k, k, full({}, r * own, {.dtype = kInt64}), full({}, s * own, {.dtype = kInt64}));
      }
  };
  run(2);
  const int64_t compiled = step.stats().compilations;
  ASSERT_NE(step.report().find("score_mods\n  x 2 "), std::string::npos) << step.report();
  for (int64_t ranks : {2, 4, 8, 16}) run(ranks);
  EXPECT_EQ(step.stats().compilations, compiled);
}

// In f64 attention is primitives, or, on request, a node of the plan that runs them.
TEST(AttentionOnShards, F64NodesInAPlan) {
  Random random(4);
  const std::vector<Tensor> x{random_tensor(kFloat64, {2, 4, 24, 8}, random),
                              random_tensor(kFloat64, {2, 2, 24, 8}, random),
                              random_tensor(kFloat64, {2, 2, 24, 6}, random), random_tensor(kFloat64, {4}, random)};
  auto make = [](bool keep) {
    return compile([keep](const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& slopes) {
      std::optional<internal::KeepAttentionNodes> nodes;
      if (keep) nodes.emplace();
      const Tensor a = q.requires_grad(), b = k.requires_grad(), c = v.requires_grad(), s = slopes.requires_grad();
      const Tensor y = flex_attention(a, b, c,
                                      {.score_mod = [s](const Score& z) { return z.value + s[z.h] * (z.kv - z.q); },
                                       .mask_mod = [](Index, Index, Index i, Index j) { return i >= j; },
                                       .enable_gqa = true,
                                       .dropout_p = 0.1});
      std::vector<Tensor> out = grad(sum(y * y), {a, b, c, s});
      out.push_back(y);
      return out;
    });
  };
  auto plain = make(false), kept = make(true);
  kept(x[0], x[1], x[2], x[3]);
  EXPECT_NE(kept.report().find("op by op, in f64"), std::string::npos) << kept.report();
  manual_seed(5);
  const std::vector<Tensor> first = plain(x[0], x[1], x[2], x[3]);
  manual_seed(5);
  const std::vector<Tensor> second = kept(x[0], x[1], x[2], x[3]);
  for (size_t i = 0; i < first.size(); ++i)
    EXPECT_TRUE(testing::close(second[i], testing::to_reals(first[i]), kFloat64, 1000)) << i;
}

}  // namespace
}  // namespace weft
