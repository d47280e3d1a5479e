// Attention written with plain ops becomes one node with the same results. Other code stays, and a note gives the
// reason.
#include "compiler/passes/patterns/discover_attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "compiler/passes/dce.h"
#include "compiler/passes/pass.h"
#include "framework/autodiff/grad.h"
#include "framework/dispatch/interpreter.h"
#include "framework/dispatch/state/generator.h"
#include "framework/ir/rewrite.h"
#include "framework/testing/values.h"
#include "ops/composite/composite.h"
#include "ops/core/core.h"

namespace weft {
namespace {

using testing::Random;
using testing::random_tensor;
using In = std::span<const Tensor>;

constexpr double kInf = std::numeric_limits<double>::infinity();

int count(const Graph& g, std::string_view op) {
  int n = 0;
  for (int32_t id = 0; id < g.size(); ++id) n += g.node(id).op->name == op;
  return n;
}

const Node& only(const Graph& g, std::string_view op) {
  for (int32_t id = 0; id < g.size(); ++id)
    if (g.node(id).op->name == op) return g.node(id);
  throw std::runtime_error("no such node");
}

struct Passed {
  Ref<Graph> before, after;
  std::string notes;
};

Passed passed(const TensorFn& fn, const std::vector<Tensor>& in) {
  std::vector<TensorType> types;
  for (const Tensor& t : in) types.push_back(t.type());
  static constexpr Pass kPasses[] = {
      {"dce", dce, ""}, {"discover_attention", discover_attention, ""}, {"dce", dce, ""}};
  std::vector<PassReport> reports;
  Passed p;
  p.before = capture_graph(fn, types);
  p.after = run_passes(p.before, kPasses, {.report = &reports});
  verify(*p.after);
  for (const PassReport& r : reports)
    for (const std::string& n : r.notes) p.notes += n + "\n";
  return p;
}

/// Value and gradients of the original graph and of the rewritten graph.
void expect_same(const TensorFn& fn, const std::vector<Tensor>& in, const char* what) {
  const TensorFn step = [&](In x) {
    std::vector<Tensor> leaves;
    for (const Tensor& t : x) leaves.push_back(is_floating(t.dtype()) ? t.requires_grad() : t);
    const Tensor y = fn(leaves)[0];
    std::vector<Tensor> wrt, out{y};
    for (const Tensor& t : leaves)
      if (is_floating(t.dtype())) wrt.push_back(t);
    const Tensor w = cos(reshape(arange(y.numel(), {.dtype = kFloat32}), y.shape()));
    for (const Tensor& g : grad(sum(cast(y, kFloat32) * w), wrt)) out.push_back(g);
    return out;
  };
  const Passed p = passed(step, in);
  EXPECT_EQ(count(*p.after, "attention"), 1) << what << "\n" << p.notes << p.after->to_string();
  EXPECT_EQ(count(*p.after, "softmax"), 0) << what;
  const std::vector<Tensor> want = interpret(*expand_grad(*p.before), in), got = interpret(*expand_grad(*p.after), in);
  for (size_t i = 0; i < want.size(); ++i)
    EXPECT_TRUE(testing::close(got[i], want[i], in[0].dtype(), in[0].dtype() == kFloat32 ? 600 : 60))
        << what << " " << i;
}

std::vector<Tensor> qkv(DType t, int64_t b = 2, int64_t h = 3, int64_t s = 20, int64_t d = 8) {
  Random random(1);
  std::vector<Tensor> x;
  for (int i = 0; i < 3; ++i) x.push_back(random_tensor(t, {b, h, s, d}, random));
  return x;
}

Tensor scores(In x) { return matmul(cast(x[0], kFloat32), transpose(cast(x[1], kFloat32), -1, -2)); }

Tensor causal(const Tensor& s) {
  const Tensor i = arange(s.size(-2)), j = arange(s.size(-1));
  return where(ge(unsqueeze(i, 1), unsqueeze(j, 0)), s, -kInf);
}

TEST(DiscoverAttention, FindsWhatProgramsWrite) {
  const std::vector<Tensor> x = qkv(kFloat32);
  Random random(2);
  const Tensor bias = random_tensor(kFloat32, {3, 20, 20}, random), slopes = random_tensor(kFloat32, {3, 1, 1}, random);
  expect_same([](In a) { return std::vector<Tensor>{matmul(softmax(scores(a) * 0.3, -1), a[2])}; }, x, "plain");
  expect_same([](In a) { return std::vector<Tensor>{matmul(softmax(scores(a) / 3.0, -1), a[2])}; }, x, "divided");
  expect_same([](In a) { return std::vector<Tensor>{matmul(softmax(causal(scores(a) * 0.3), -1), a[2])}; }, x,
              "causal");
  expect_same(
      [](In a) {
        const Tensor above = triu(ones({20, 20}), 1);
        return std::vector<Tensor>{matmul(softmax(masked_fill(scores(a) * 0.3, ne(above, 0.0), -kInf), -1), a[2])};
      },
      x, "masked_fill");
  expect_same(
      [](In a) {
        const Tensor s = scores(a) * 0.3;
        const Tensor distance = unsqueeze(arange(20), 0) - unsqueeze(arange(20), 1);
        return std::vector<Tensor>{matmul(softmax(causal(s + a[3] * distance), -1), a[2])};
      },
      {x[0], x[1], x[2], slopes}, "alibi");
  expect_same([](In a) { return std::vector<Tensor>{matmul(softmax(tanh(scores(a) / 5.0) * 5.0 + a[3], -1), a[2])}; },
              {x[0], x[1], x[2], bias}, "softcap and bias");
  expect_same(
      [](In a) {
        return std::vector<Tensor>{
            einsum("bhqk,bkhd->bqhd", {softmax(einsum("bqhd,bkhd->bhqk", {a[0], a[1]}) * 0.3, -1), a[2]})};
      },
      x, "einsum over heads in rows");
  expect_same([](In a) { return std::vector<Tensor>{matmul(softmax(matmul(a[0], transpose(a[1], 0, 1)), -1), a[2])}; },
              {x[0][0][0], x[1][0][0], x[2][0][0]}, "two dims");
}

TEST(DiscoverAttention, SixteenBits) {
  expect_same(
      [](In a) {
        const Tensor s = dot_general(a[0], a[1], {{0, 1}, {0, 1}, {3}, {3}}, kFloat32);
        return std::vector<Tensor>{matmul(cast(softmax(causal(s * 0.3), -1), kBFloat16), a[2])};
      },
      qkv(kBFloat16), "bf16");
}

// Softmax of 16-bit scores: the mod computes in f32.
TEST(DiscoverAttention, SixteenBitScores) {
  struct Row {
    const char* name;
    Tensor (*scores)(In a, const Tensor& s);  // scores of attention from a scaled product
  };
  const auto visible = [] { return ge(unsqueeze(arange(20), 1), unsqueeze(arange(20), 0)); };
  static const auto kVisible = visible;
  const Row rows[] = {
      {"plain", [](In, const Tensor& s) { return s; }},
      {"where -inf", [](In, const Tensor& s) { return where(kVisible(), s, -kInf); }},
      {"where -1e9", [](In, const Tensor& s) { return where(kVisible(), s, s.dtype() == kFloat16 ? -65504 : -1e9); }},
      {"masked_fill", [](In, const Tensor& s) { return masked_fill(s, logical_not(kVisible()), -kInf); }},
      {"added", [](In a, const Tensor& s) { return s + a[3]; }},
      {"tanh cap", [](In, const Tensor& s) { return where(kVisible(), tanh(s / 5.0) * 5.0, -kInf); }},
      {"alibi",
       [](In, const Tensor& s) {
         const Tensor distance = unsqueeze(arange(20), 0) - unsqueeze(arange(20), 1);
         return where(kVisible(), s + (distance * 0.125).to(s.dtype()), -kInf);
       }},
  };
  for (DType t : {kBFloat16, kFloat16})
    for (const Row& row : rows) {
      std::vector<Tensor> x = qkv(t);
      x.push_back(where(kVisible(), 0.0, -3e4).to(t));
      expect_same(
          [&](In a) {
            const Tensor s = matmul(a[0], transpose(a[1], -1, -2)) * 0.25;
            return std::vector<Tensor>{matmul(softmax(row.scores(a, s), -1), a[2])};
          },
          x, str_cat(t, " ", row.name).c_str());
    }
}

TEST(DiscoverAttention, MaskAndScaleAreTakenOut) {
  const Passed p = passed([](In a) { return std::vector<Tensor>{matmul(softmax(causal(scores(a) * 0.25), -1), a[2])}; },
                          qkv(kFloat32));
  const Node& n = only(*p.after, "attention");
  EXPECT_EQ(n.attrs.f("scale"), 0.25);
  EXPECT_FALSE(n.attrs.has("score"));
  EXPECT_TRUE(n.attrs.has("mask"));
  EXPECT_EQ(n.inputs.size(), 3u) << "the mask is arithmetic on indices, not a table";
  EXPECT_NE(p.notes.find("is attention's: one kernel"), std::string::npos) << p.notes;
}

TEST(DiscoverAttention, DropoutDropsTheSame) {
  manual_seed(3);
  const TensorFn fn = [](In a) { return std::vector<Tensor>{matmul(dropout(softmax(scores(a), -1), 0.3), a[2])}; };
  const std::vector<Tensor> x = qkv(kFloat32);
  const Passed p = passed(fn, x);
  ASSERT_EQ(count(*p.after, "attention"), 1) << p.notes << p.after->to_string();
  EXPECT_EQ(count(*p.after, "random_bits"), 0);
  EXPECT_TRUE(testing::close(interpret(*p.after, x)[0], interpret(*p.before, x)[0], kFloat32, 600));
}

TEST(DiscoverAttention, RowsWithoutKeysStayNaN) {
  const TensorFn fn = [](In a) {
    const Tensor never = where(lt(reshape(arange(20), {20, 1}), 18), scores(a), -kInf);
    return std::vector<Tensor>{matmul(softmax(never, -1), a[2])};
  };
  const std::vector<Tensor> x = qkv(kFloat32);
  const Passed p = passed(fn, x);
  ASSERT_EQ(count(*p.after, "attention"), 1) << p.notes;
  EXPECT_TRUE(testing::close(interpret(*p.after, x)[0], interpret(*p.before, x)[0], kFloat32, 600));
}

TEST(DiscoverAttention, SaysWhatStays) {
  const std::vector<Tensor> x = qkv(kFloat32);
  const Passed kept = passed(
      [](In a) {
        const Tensor p = softmax(scores(a), -1);
        return std::vector<Tensor>{matmul(p, a[2]), p};
      },
      x);
  EXPECT_EQ(count(*kept.after, "attention"), 0);
  EXPECT_NE(kept.notes.find("stays: softmax"), std::string::npos) << kept.notes;
  EXPECT_NE(kept.notes.find("is a result too"), std::string::npos) << kept.notes;
  const Passed read = passed(
      [](In a) {
        const Tensor s = scores(a);
        return std::vector<Tensor>{matmul(softmax(s, -1), a[2]), sum(s)};
      },
      x);
  EXPECT_EQ(count(*read.after, "attention"), 0);
  EXPECT_NE(read.notes.find("too"), std::string::npos) << read.notes;
  // The softmax of a classifier is not attention, and gets no note.
  EXPECT_EQ(passed([](In a) { return std::vector<Tensor>{softmax(a[0] * 2.0, -1)}; }, x).notes, "");
}

}  // namespace
}  // namespace weft
