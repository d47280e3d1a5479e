// Tests that attention calls share the analysis of a mask while every byte of its tables is the same.
#include "ops/attention/masks/call_mask.h"

#include <gtest/gtest.h>

#include "framework/autodiff/grad.h"
#include "framework/dispatch/capture.h"
#include "ops/attention/flex_attention.h"
#include "ops/attention/masks/masks.h"
#include "ops/attention/record.h"
#include "ops/core/core.h"

namespace weft::internal {
namespace {

std::shared_ptr<const CallMask> ask(const MaskMod& mask, int64_t n) {
  const Body body = trace_mask(mask);
  std::vector<StridedView> tables;
  for (const Tensor& t : body.lifted) tables.push_back(t.view_for_kernel());
  return mask_of_call(body.graph, tables, {1, 2, n, n}, true);
}

TEST(CallMask, IsSharedByLayersAndTheirBackward) {
  std::vector<int64_t> ids(200);
  for (int64_t i = 0; i < 200; ++i) ids[i] = i / 70;
  const Tensor doc = Tensor::from_vector<int64_t>(ids, {200});
  const auto first = ask(attention::document(doc) & attention::causal(), 200);
  EXPECT_EQ(ask(attention::document(doc) & attention::causal(), 200), first);
  EXPECT_EQ(ask(attention::document(doc + 0) & attention::causal(), 200), first);  // other memory, same ids
  EXPECT_NE(ask(attention::document(doc + 1) & attention::causal(), 200), first);
  EXPECT_NE(ask(attention::document(doc), 200), first);
  EXPECT_NE(ask(attention::document(doc) & attention::causal(), 199), first);
}

TEST(CallMask, ChangedContentsAreAnotherMask) {
  const int64_t n = 150;
  std::vector<int64_t> ids(n, 0);
  const Tensor doc = Tensor::from_blob(ids.data(), {n}, kInt64);
  const Tensor x = reshape(arange(n * 8, {.dtype = kFloat32}), {1, 1, n, 8}) / 1000.0;
  auto out = [&](const Tensor& table) {
    return flex_attention(x, x, x, {.mask_mod = attention::document(table)}).to_vector<float>();
  };
  const std::vector<float> before = out(doc);
  ids[n - 1] = 1;  // changes the memory without the cache noticing
  const std::vector<float> after = out(doc);
  EXPECT_NE(before, after);
  EXPECT_EQ(after, out(Tensor::from_vector<int64_t>(ids, {n})));
  EXPECT_EQ(after[(n - 1) * 8], x.to_vector<float>()[(n - 1) * 8]);  // the last query sees only itself
}

// op_cost of the attention node, forward or backward, of 2 batch entries and 2 heads over n positions.
Cost cost_of(const MaskMod& mask, int64_t n, const OpDef& op = attention_op) {
  const TensorType t{kFloat32, Device::cpu(), {2, 2, n, 8}};
  const Ref<Graph> g = capture_graph(
      [&](std::span<const Tensor> x) {
        const Tensor q = x[0].requires_grad(), out = flex_attention(q, x[1], x[2], {.mask_mod = mask});
        return &op == &attention_op ? std::vector{out} : grad(sum(out), std::vector{q});
      },
      std::vector{t, t, t});
  const Ref<Graph> whole = expand_grad(*g);
  for (int32_t id = 0; id < whole->size(); ++id) {
    const Node& node = whole->node(id);
    if (node.op != &op) continue;
    std::vector<TensorType> in;
    for (Value v : node.inputs) in.push_back(whole->type(v));
    return op_cost(op, node.attrs, in, node.outputs);
  }
  ADD_FAILURE() << "no " << op.name << " in " << whole->to_string();
  return {};
}

TEST(AttentionCost, CountsTheScoresThatTheMaskLeaves) {
  const int64_t n = 1000;
  const double full = cost_of({}, n).flops, score = 2 * (8 + 8) + 20;
  EXPECT_EQ(full, 4.0 * n * n * score);
  EXPECT_EQ(cost_of(attention::causal(), n).flops, 4.0 * n * (n + 1) / 2 * score);
  EXPECT_EQ(cost_of(attention::causal(), n, attention_backward_op).flops, 4.0 * n * (n + 1) / 2 * (6 * 8 + 4 * 8 + 30));
  EXPECT_EQ(cost_of(attention::causal(), n).products, 4.0 * n * (n + 1) / 2 * 2 * (8 + 8));
  EXPECT_FALSE(cost_of(attention::causal(), n).at_most);
  // A window's scores grow with n, not with n n.
  auto window = [](Index, Index, Index q, Index kv) { return (q >= kv) & (q - kv < 100); };
  auto seen = [](double m) { return 4 * (100 * 101 / 2 + (m - 100) * 100); };
  EXPECT_EQ(cost_of(MaskMod(window), n).flops, seen(n) * score);
  EXPECT_EQ(cost_of(MaskMod(window), 2 * n).flops, seen(2 * n) * score);
  // Heads differ: the first sees all keys, the second is causal.
  auto second = [](Index, Index h, Index q, Index kv) { return (h == 0) | (q >= kv); };
  EXPECT_EQ(cost_of(MaskMod(second), n).flops, 2.0 * (n * n + n * (n + 1) / 2) * score);
  // Analysis settles no block.
  auto scattered = [](Index, Index, Index q, Index kv) { return remainder(q * q * 7 + kv * kv * 13, 5) == 0; };
  double points = 0;
  for (int64_t q = 0; q < 300; ++q)
    for (int64_t kv = 0; kv < 300; ++kv) points += (q * q * 7 + kv * kv * 13) % 5 == 0;
  EXPECT_EQ(cost_of(MaskMod(scattered), 300).flops, 4 * points * score);
  EXPECT_FALSE(cost_of(MaskMod(scattered), 300).at_most);
}

TEST(AttentionCost, IsABoundWhereTablesDecide) {
  const int64_t n = 256;
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < n; ++i) ids.push_back(i / 64);
  const Tensor doc = Tensor::from_vector<int64_t>(ids, {n});
  const Cost c = cost_of(attention::document(doc) & attention::causal(), n);
  EXPECT_TRUE(c.at_most);
  EXPECT_EQ(c.flops, cost_of({}, n).flops);
}

}  // namespace
}  // namespace weft::internal
