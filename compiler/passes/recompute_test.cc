#include "compiler/passes/recompute.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "compiler/cost/keep_cost.h"
#include "compiler/passes/cse.h"
#include "compiler/passes/dce.h"
#include "compiler/passes/pass.h"
#include "compiler/passes/patterns/simplify.h"
#include "compiler/passes/testing/random_ops_graph.h"
#include "framework/autodiff/grad.h"
#include "framework/dispatch/capture.h"
#include "framework/ir/rewrite.h"
#include "ops/composite/composite.h"
#include "ops/core/core.h"

namespace weft {
namespace {

Ref<Graph> or_same(Ref<Graph> next, const Ref<Graph>& now) { return next ? next : now; }

// The gradients of fn(inputs).sum() as in the pipeline before rematerialisation; the loss is a result too.
Ref<Graph> gradients(const TensorFn& fn, std::vector<TensorType> types) {
  Ref<Graph> g = capture_graph(
      [&](std::span<const Tensor> in) {
        std::vector<Tensor> wrt;
        for (const Tensor& t : in) wrt.push_back(t.requires_grad());
        Tensor loss = fn(wrt)[0];
        std::vector<Tensor> out = grad(loss, wrt);
        out.push_back(loss);
        return out;
      },
      types);
  g = expand_grad(*g);
  g = or_same(dce(*g), g);
  g = or_same(simplify(*g), g);
  g = or_same(cse(*g), g);
  return or_same(dce(*g), g);
}

TensorType f32(Shape s) { return {kFloat32, Device::cpu(), s}; }

// The large values that the backward part reads from the forward part: "op dtype" -> count; views count as their
// source.
std::map<std::string, int> kept(const Graph& g) {
  std::vector<bool> backward(g.size());
  std::map<std::string, int> found;
  std::vector<bool> seen(g.size());
  for (int32_t id = 0; id < g.size(); ++id) {
    backward[id] = g.node(id).backward;
    for (Value v : g.node(id).inputs) backward[id] = backward[id] || backward[v.node];
    if (!backward[id]) continue;
    for (Value v : g.node(id).inputs) {
      while (!backward[v.node] && g.node(v).op->is(kView) && !g.node(v).inputs.empty()) v = g.node(v).inputs[0];
      if (backward[v.node] || seen[v.node] || g.type(v).nbytes() <= 4096) continue;
      seen[v.node] = true;
      ++found[str_cat(g.node(v).op->name, " ", g.type(v).dtype)];
    }
  }
  return found;
}

using Kept = std::map<std::string, int>;

void expect_same_results(const Graph& a, const Graph& b) {
  std::mt19937 random(3);
  EXPECT_EQ(testing::difference(a, b, testing::random_arguments(random, a)), "");
}

Ref<Graph> checked(const Graph& g, const RecomputePolicy& policy = {}) {
  RecomputeResult r = recompute_by(g, policy);
  if (!r.graph) return make_ref<Graph>(g);
  verify(*r.graph);
  expect_same_results(g, *r.graph);
  EXPECT_FALSE(cse(*r.graph)) << "copies would be merged again";
  return r.graph;
}

Tensor linear(const Tensor& x, const Tensor& w) { return matmul(x, w.transpose(0, 1)); }

TEST(Recompute, OfGeluOnlyThePreactivationIsKept) {
  for (DType dtype : {kFloat32, kBFloat16}) {
    Ref<Graph> g = gradients(
        [&](std::span<const Tensor> in) {
          Tensor h = gelu(linear(cast(in[0], dtype), cast(in[1], dtype)));
          return std::vector<Tensor>{square(linear(h, cast(in[2], dtype))).sum()};
        },
        {f32({64, 32}), f32({128, 32}), f32({16, 128})});
    const std::string d = str_cat(" ", dtype);
    Kept all = kept(*checked(*g));
    // The dot's result before and after the activation: backward reads both, the second one in a dot.
    EXPECT_EQ(all["dot" + d], 1) << ::testing::PrintToString(all);
    for (const char* op : {"sigmoid", "tanh", "square", "add", "exp"})
      EXPECT_EQ(all.count(str_cat(op, " f32")), 0) << op;
  }
}

TEST(Recompute, OfSoftmaxTheResultIsKept) {
  Ref<Graph> g = gradients(
      [](std::span<const Tensor> in) {
        Tensor scores = linear(in[0], in[1]) * 0.125;
        return std::vector<Tensor>{square(matmul(softmax(scores, 1), in[2])).sum()};
      },
      {f32({256, 32}), f32({256, 32}), f32({256, 32})});
  const Kept before = kept(*g), after = kept(*checked(*g));
  EXPECT_FALSE(after.contains("exp f32")) << ::testing::PrintToString(after);
  EXPECT_EQ(after.at("dot f32"), 1);  // the squared value
  EXPECT_EQ(after.at("div f32"), 1);  // operand of the second product in both directions
  // The derivative reads the result: there is nothing to gain unless memory is expensive. Then not even that is kept.
  EXPECT_EQ(before, after);
  EXPECT_FALSE(kept(*checked(*g, {.stored_byte = 1e6, .expensive = true})).contains("div f32"));
}

TEST(Recompute, OfRmsNormTheInputIsKept) {
  Ref<Graph> g = gradients(
      [](std::span<const Tensor> in) {
        Tensor x = linear(cast(in[0], kBFloat16), cast(in[1], kBFloat16));
        return std::vector<Tensor>{square(rms_norm(x, in[2], 1e-5)).sum()};
      },
      {f32({256, 32}), f32({64, 32}), f32({64})});
  const Kept after = kept(*checked(*g));
  EXPECT_EQ(after.at("dot bf16"), 1);
  EXPECT_EQ(after.count("mul f32"), 0) << ::testing::PrintToString(after);
  EXPECT_EQ(after.count("cast f32"), 0) << ::testing::PrintToString(after);
}

TEST(Recompute, OfCrossEntropyTheLogitsAreKept) {
  Ref<Graph> g = gradients(
      [](std::span<const Tensor> in) {
        Tensor targets = Tensor::from_vector<int64_t>(std::vector<int64_t>(128, 3), {128});
        return std::vector<Tensor>{cross_entropy(linear(in[0], in[1]), targets)};
      },
      {f32({128, 32}), f32({96, 32})});
  const Kept after = kept(*checked(*g));
  EXPECT_EQ(after.at("dot f32"), 1) << ::testing::PrintToString(after);
  EXPECT_EQ(after.count("exp f32"), 0) << ::testing::PrintToString(after);
}

TEST(Recompute, CopiesKeepLineAndScopeAndAreMarked) {
  Ref<Graph> g = gradients(
      [](std::span<const Tensor> in) {
        NameScope scope("ffn");
        return std::vector<Tensor>{square(gelu(linear(in[0], in[1]))).sum()};
      },
      {f32({64, 32}), f32({128, 32})});
  Ref<Graph> now = checked(*g);
  int copies = 0;
  for (int32_t id = 0; id < now->size(); ++id) {
    const Node& n = now->node(id);
    if (!n.recomputed) continue;
    ++copies;
    EXPECT_TRUE(n.backward);
    EXPECT_STREQ(n.scope, "ffn");
    EXPECT_GT(n.line.line, 0u);
    EXPECT_FALSE(n.op->is(kContraction) || n.op->is(kReduction)) << n.op->name;
  }
  EXPECT_GT(copies, 0);
}

TEST(Recompute, NothingWithoutABackwardPart) {
  Ref<Graph> g = capture_graph(
      [](std::span<const Tensor> in) {
        return std::vector<Tensor>{gelu(in[0]), exp(in[0])};
      },
      std::vector<TensorType>{f32({64, 64})});
  EXPECT_FALSE(recompute_by(*g, {}).graph);
}

TEST(Recompute, RandomBitsAreDrawnOnceUnlessMemoryIsDear) {
  Ref<Graph> g = gradients(
      [](std::span<const Tensor> in) {
        return std::vector<Tensor>{square(linear(dropout(gelu(linear(in[0], in[1])), 0.5), in[2])).sum()};
      },
      {f32({64, 32}), f32({128, 32}), f32({16, 128})});
  auto draws = [](const Graph& x) {
    int n = 0;
    for (int32_t id = 0; id < x.size(); ++id) n += x.node(id).op->is(kRandom);
    return n;
  };
  EXPECT_EQ(draws(*g), 1);
  EXPECT_EQ(draws(*checked(*g)), 1);
  EXPECT_EQ(draws(*checked(*g, {.stored_byte = 1e6, .expensive = true})), 2);
}

// A stack of blocks with a narrow place between blocks.
Ref<Graph> deep(int blocks) {
  std::vector<TensorType> types = {f32({64, 32})};
  for (int i = 0; i < blocks; ++i) {
    types.push_back(f32({128, 32}));
    types.push_back(f32({32, 128}));
  }
  return gradients(
      [=](std::span<const Tensor> in) {
        Tensor x = in[0] * 1.5;
        for (int i = 0; i < blocks; ++i)
          x = x + linear(gelu(linear(rms_norm(x, full({32}, 1.25), 1e-5), in[1 + 2 * i])), in[2 + 2 * i]);
        return std::vector<Tensor>{square(x).sum()};
      },
      types);
}

TEST(Recompute, DearerBytesKeepLess) {
  Ref<Graph> g = deep(6);
  int64_t last = INT64_MAX;
  for (double byte : {0.25, 1., 2., 4., 8., 32., 128.}) {
    RecomputeResult r = recompute_by(*g, {.stored_byte = byte, .expensive = true, .span = 1, .late_stored_byte = byte});
    EXPECT_LE(r.kept_bytes, last) << byte;
    last = r.kept_bytes;
    if (r.graph) expect_same_results(*g, *r.graph);
  }
  RecomputeResult all = recompute_by(*g, {.stored_byte = 1e6, .expensive = true, .span = 1, .late_stored_byte = 1e6});
  EXPECT_GE(all.narrow.size(), 6u);
  EXPECT_LE(all.narrow.size(), 8u);  // and before the first block, after the last one
  // Only the values between blocks are left, and rows.
  EXPECT_LE(all.kept_bytes, static_cast<int64_t>(all.narrow.size()) * (64 * 32 * 4 + 64 * 4 * 3));
  EXPECT_TRUE(std::is_sorted(all.narrow.begin(), all.narrow.end()) && all.narrow.back() <= 1);
  EXPECT_GT(all.flops, 5 * 2 * 64 * 32 * 128);
}

TEST(Recompute, LateValuesHaveAPriceOfTheirOwn) {
  Ref<Graph> g = deep(6);
  RecomputePolicy policy{.stored_byte = 128, .expensive = true, .span = 1, .share = 0.5};
  const int64_t half = recompute_by(*g, policy).kept_bytes;
  policy.share = 1;
  const int64_t all = recompute_by(*g, policy).kept_bytes;
  policy.share = 0;
  const int64_t none = recompute_by(*g, policy).kept_bytes;
  EXPECT_LT(all, half);
  EXPECT_LT(half, none);
}

// For any choice of backward nodes and any policy, results keep their bits.
TEST(Recompute, RandomGraphs) {
  std::mt19937 random(11);
  int changed = 0;
  for (int i = 0; i < 400; ++i) {
    Ref<Graph> plain = testing::random_ops_graph(random, 10 + i % 60);
    Graph g;
    const int32_t from = static_cast<int32_t>(random() % plain->size());
    for (int32_t id = 0; id < plain->size(); ++id) {
      Node n = plain->node(id);
      n.backward = id > from && !n.inputs.empty() && random() % 3 == 0;
      g.add(std::move(n));
    }
    g.inputs = plain->inputs;
    g.outputs = plain->outputs;
    g.captured = plain->captured;
    g.stage = plain->stage;
    RecomputePolicy policy;
    policy.stored_byte = policy.late_stored_byte = std::array{0., 0.25, 4., 1e4}[random() % 4];
    policy.expensive = random() % 2;
    policy.span = static_cast<int32_t>(random() % 3);
    policy.share = static_cast<double>(random() % 3) / 2;
    policy.small = random() % 2 ? 0 : 16;
    RecomputeResult r = recompute_by(g, policy);
    if (!r.graph) continue;
    ++changed;
    verify(*r.graph);
    verify_same_interface(g, *r.graph);
    ASSERT_EQ(testing::difference(g, *r.graph, testing::random_arguments(random, g)), "")
        << g.to_string() << r.graph->to_string();
  }
  EXPECT_GT(changed, 50);
}

// A product of 16-bit floats is worth 75 operations a byte on the CPU that plans are made for, 330 on the GPU. A
// launch is added.
TEST(KeepCosts, AreThoseOfTheGraphsDevice) {
  for (const Device device : {Device::cpu(), Device::cuda(0)}) {
    const TensorType t{kBFloat16, device, {1024, 1024}};
    const Ref<Graph> g =
        capture_graph([](std::span<const Tensor> x) { return std::vector{matmul(x[0], x[1])}; }, std::vector{t, t});
    const KeepCosts costs(*g);
    const Machine& m = planned_machine(device.type);
    EXPECT_EQ(&costs.machine(), &m);
    int32_t product = 0;
    while (!g->node(product).op->is(kContraction)) ++product;
    const double bytes = 2.0 * 1024 * 1024 * 1024 * m.bytes / m.products16 + m.launch * m.bytes * m.reached;
    EXPECT_NEAR(static_cast<double>(costs.node(product).again), bytes * kCostPerByte, 1);
  }
  const Machine &cpu = planned_machine(DeviceType::kCpu), &gpu = planned_machine(DeviceType::kCuda);
  EXPECT_NEAR(cpu.products16 / cpu.bytes, 75, 1);
  EXPECT_NEAR(gpu.products16 / gpu.bytes, 330, 1);
}

}  // namespace
}  // namespace weft
