// fuse: the launches of small programs. Values stay the same, by the interpreter and by the kernels of the groups.
#include "compiler/passes/fusion/fuse.h"

#include <gtest/gtest.h>

#include <cmath>

#include "compiler/loop_ir/fused.h"
#include "compiler/loop_ir/prologue.h"
#include "compiler/loop_ir/testing/run_lowered.h"
#include "compiler/passes/fusion/fuse_report.h"
#include "compiler/passes/pipeline.h"
#include "compiler/passes/testing/random_ops_graph.h"
#include "framework/autodiff/grad.h"
#include "framework/dispatch/capture.h"
#include "framework/dispatch/interpreter.h"
#include "framework/ir/rewrite.h"
#include "ops/all_ops.h"
#include "ops/composite/composite.h"
#include "ops/core/core.h"

namespace weft {
namespace {

using testing::difference;
using testing::random_arguments;

TensorType f32(Shape s) { return {kFloat32, Device::cpu(), s}; }
TensorType bf16(Shape s) { return {kBFloat16, Device::cpu(), s}; }

Ref<Graph> joint(const TensorFn& fn, const std::vector<TensorType>& types, const PassOptions& options = {}) {
  return run_passes(capture_graph(fn, types, true), passes_of(PassStage::kJoint), options);
}

/// The ops of a body in order, without views and constants: "mul reduce_sum".
std::string ops_of(const Graph& body) {
  std::string s;
  for (int32_t id = 0; id < body.size(); ++id) {
    const Node& n = body.node(id);
    if (n.inputs.empty() || n.op->view) continue;
    s += (s.empty() ? "" : " ") + std::string(n.op->name);
  }
  return s;
}

/// One line per launch: fused ones as "[a b c]", with "-> 2" if they have several results.
std::vector<std::string> launches(const Graph& g) {
  std::vector<std::string> lines;
  for (int32_t id = 0; id < g.size(); ++id) {
    const Node& n = g.node(id);
    if (n.op == &loop_ir::fused_op) {
      std::string s = "[" + ops_of(loop_ir::body_of(n)) + "]";
      if (n.outputs.size() > 1) s += str_cat(" -> ", n.outputs.size());
      lines.push_back(s);
    } else if (!n.inputs.empty() && !n.op->view) {
      lines.push_back(n.op->name);
    }
  }
  return lines;
}

/// Runs the graph; fused nodes run as lowered kernels on one thread.
std::vector<Tensor> run_kernels(const Graph& g, std::span<const Tensor> args) {
  NoGrad guard;
  const auto run = [&](int32_t id, std::span<const Tensor> in, std::vector<Tensor>& out) {
    const Node& n = g.node(id);
    if (!out.empty()) return true;
    if (n.op == &loop_ir::fused_op && loop_ir::take_apart(loop_ir::body_of(n))) {
      EXPECT_EQ(loop_ir::cannot_lower(loop_ir::body_of(n)),
                "");  // run as several kernels: see compiler/exec/prologue_test.cc
    } else if (n.op == &loop_ir::fused_op) {
      const Graph& body = loop_ir::body_of(n);
      std::vector<loop_ir::ValueLayout> li, lo;
      std::vector<StridedView> vi, vo;
      for (const Tensor& t : in) {
        li.push_back({t.type(), t.strides()});
        vi.push_back(t.view_for_kernel());
      }
      for (const TensorType& t : n.outputs) {
        out.push_back(Tensor::empty(t));
        lo.push_back({t, contiguous_strides(t.shape)});
        vo.push_back(out.back().view_for_kernel());
      }
      const loop_ir::Lowered low = loop_ir::lower_group(body, li, lo, {.round_like_eager = true});
      low.kernel.verify();
      if (low.dot < 0) {
        loop_ir::run_lowered(low, vi, vo);
        return true;
      }
    }
    // One node as a separate graph.
    std::vector<TensorType> operands;
    for (const Tensor& t : in) operands.push_back(t.type());
    out = interpret(*graph_of_one(n, operands), in);
    return true;
  };
  return internal::evaluate_nodes(g, args, run).outputs;
}

/// Fuses, and checks the graph and its values on normal random arguments.
Ref<Graph> fused(const Ref<Graph>& g, const FuseOptions& options = {}) {
  Ref<Graph> f = fuse(*g, options);
  if (!f) return g;
  verify(*f);
  verify_same_interface(*g, *f);
  EXPECT_EQ(f->stage, "fused");
  std::mt19937 random(3);
  std::normal_distribution<double> normal;
  std::vector<Tensor> args;
  for (Value v : g->inputs) {
    const TensorType& t = g->type(v);
    std::vector<double> x(t.shape.numel());
    for (double& e : x) e = is_floating(t.dtype) ? normal(random) : static_cast<double>(random() % 5);
    args.push_back(cast(Tensor::from_vector<double>(x, t.shape), t.dtype));
  }
  EXPECT_EQ(difference(*g, *f, args), "") << f->to_string();
  const std::vector<Tensor> want = interpret(*g, args), got = run_kernels(*f, args);
  for (size_t i = 0; i < want.size(); ++i) EXPECT_EQ(difference(want[i], got[i]), "") << "result " << i;
  return f;
}

using Lines = std::vector<std::string>;

TEST(Fuse, ElementwiseChainsWithViews) {
  auto g = joint(
      [](std::span<const Tensor> x) {
        return std::vector{gelu(x[0]) * reshape(x[1], {4, 6})};
      },
      {f32({4, 6}), f32({24})});
  EXPECT_EQ(launches(*fused(g)).size(), 1u);
}

TEST(Fuse, ACopyIsPartOfTheKernel) {
  auto g = joint(
      [](std::span<const Tensor> x) {
        return std::vector{reshape(permute(exp(x[0]), {1, 0, 2}), {3, 8}) + 1};
      },
      {f32({2, 3, 4})});
  EXPECT_EQ(launches(*fused(g)), Lines{"[exp add]"});
}

TEST(Fuse, ALoneOpIsAKernelIfAnOperandLiesAcross) {
  auto add = [](std::span<const Tensor> x) { return std::vector{transpose(x[0], 0, 1) + x[1]}; };
  EXPECT_EQ(launches(*fused(joint(add, {f32({300, 260}), f32({260, 300})}))), Lines{"[add]"});
  EXPECT_EQ(launches(*fused(joint(add, {f32({30, 26}), f32({26, 30})}))), Lines{"add"});
  auto swap = [](std::span<const Tensor> x) { return std::vector{relu(permute(x[0], {1, 0, 2}))}; };
  EXPECT_EQ(launches(*fused(joint(swap, {f32({300, 260, 2})}))), Lines{"relu"});
}

TEST(Fuse, ALoneOpIsAKernelIfItsResultGoesPastTheCaches) {
  auto scale = [](std::span<const Tensor> x) { return std::vector{x[0] * 3.0}; };
  EXPECT_EQ(launches(*fused(joint(scale, {f32({4096, 2048})}))), Lines{"[mul]"});
  EXPECT_EQ(launches(*fused(joint(scale, {f32({4095, 2048})}))), Lines{"mul"});
}

TEST(Fuse, SoftmaxIsOneKernelOverAnyDim) {
  for (int dim : {-1, 0, 1}) {
    auto g = joint([&](std::span<const Tensor> x) { return std::vector{softmax(x[0], dim)}; }, {f32({20, 24, 40})});
    EXPECT_EQ(launches(*fused(g)).size(), 1u) << dim;
  }
}

TEST(Fuse, NormsForwardAndBackward) {
  auto layer = [](std::span<const Tensor> x) {
    Tensor y = layer_norm(x[0], {64}, x[1], x[2]);
    std::vector<Tensor> r{y};
    for (Tensor& t : grad(sum(y * x[3]), {x[0], x[1], x[2]})) r.push_back(t);
    return r;
  };
  auto g = fused(joint(layer, {f32({100, 64}), f32({64}), f32({64}), f32({100, 64})}));
  EXPECT_LE(launches(*g).size(), 2u) << g->to_string();

  auto rms = [](std::span<const Tensor> x) {
    Tensor y = rms_norm(x[0], x[1], 1e-5);
    std::vector<Tensor> r{y};
    for (Tensor& t : grad(sum(y * x[2]), {x[0], x[1]})) r.push_back(t);
    return r;
  };
  g = fused(joint(rms, {f32({4, 25, 64}), f32({64}), f32({4, 25, 64})}));
  EXPECT_LE(launches(*g).size(), 2u) << g->to_string();
}

TEST(Fuse, CrossEntropy) {
  auto loss = [](std::span<const Tensor> x) {
    Tensor l = cross_entropy(x[0], x[1]);
    return std::vector{l, grad(l, {x[0]})[0]};
  };
  auto g = fused(joint(loss, {f32({64, 50}), {kInt64, Device::cpu(), {64}}}));
  EXPECT_LE(launches(*g).size(), 6u) << g->to_string();
}

TEST(Fuse, AnOptimiserStepIsOneKernelPerParameter) {
  auto step = [](std::span<const Tensor> x) {  // p, m, v, g, lr, steps
    Tensor t = x[5] + 1;
    Tensor c1 = -expm1(t * std::log(0.9)), c2 = sqrt(-expm1(t * std::log(0.999)));
    Tensor m = x[1] + (x[3] - x[1]) * 0.1, v = x[2] * 0.999 + square(x[3]) * 0.001;
    Tensor p = x[0] * (1.0 - x[4] * 0.01) - m / (sqrt(v) / c2 + 1e-8) * (x[4] / c1);
    return std::vector{p, m, v, t};
  };
  auto g = fused(joint(step, {f32({30, 50}), f32({30, 50}), f32({30, 50}), f32({30, 50}), f32({}), f32({})}));
  const Lines l = launches(*g);
  ASSERT_EQ(l.size(), 2u) << g->to_string();
  EXPECT_TRUE(l[1].ends_with("-> 3")) << l[1];
}

TEST(Fuse, AttentionHoldsOneMaskForAllHeads) {
  auto attention = [](std::span<const Tensor> x) {
    const Tensor s = matmul(x[0], transpose(x[1], -1, -2)) * 0.25, i = arange(40);
    Tensor y = matmul(softmax(where(ge(unsqueeze(i, 1), unsqueeze(i, 0)), s, -HUGE_VAL), -1), x[2]);
    std::vector<Tensor> r{y};
    for (Tensor& t : grad(sum(y * x[3]), {x[0], x[1], x[2]})) r.push_back(t);
    return r;
  };
  const TensorType t = f32({2, 3, 40, 16});
  auto g = fused(joint(attention, {t, t, t, t}, {.disable = {"discover_attention"}}));
  int products = 0, others = 0;
  for (const std::string& l : launches(*g)) (l.find("dot") != l.npos ? products : others)++;
  EXPECT_EQ(products, 6);
  EXPECT_EQ(others, 2) << g->to_string();  // the gradient of the scores does not depend on the result
  for (int32_t id = 0; id < g->size(); ++id)
    for (const TensorType& o : g->node(id).outputs) EXPECT_TRUE(o.dtype != kBool || o.shape.numel() <= 40 * 40);
}

TEST(Fuse, ProductsTakeTheirEpilogue) {
  auto mlp = [](std::span<const Tensor> x) {
    return std::vector{gelu(linear(x[0], x[1], x[2])), linear(x[0], x[1]) + x[3]};
  };
  auto g = fused(joint(mlp, {f32({20, 16}), f32({24, 16}), f32({24}), f32({20, 24})}));
  for (const std::string& l : launches(*g)) EXPECT_TRUE(l.starts_with("[dot")) << l;

  auto residual = [](std::span<const Tensor> x) { return std::vector{gelu(linear(x[0], x[1], x[2])) + x[3]}; };
  auto light = [](std::span<const Tensor> x) { return std::vector{relu(linear(x[0], x[1], x[2])) + x[3]}; };
  g = fused(joint(residual, {f32({20, 16}), f32({24, 16}), f32({24}), f32({20, 24})}));
  ASSERT_EQ(launches(*g).size(), 1u) << g->to_string();
  // Only cheap ops run between tiles of 16-bit products.
  const std::vector<TensorType> narrow{bf16({20, 16}), bf16({24, 16}), bf16({24}), bf16({20, 24})};
  ASSERT_EQ(launches(*fused(joint(light, narrow))).size(), 1u);
  ASSERT_EQ(launches(*fused(joint(residual, narrow))).size(), 2u);
  auto off = fused(joint(residual, {f32({20, 16}), f32({24, 16}), f32({24}), f32({20, 24})}), {.epilogue = false});
  EXPECT_EQ(launches(*off).size(), 2u);
}

TEST(Fuse, AnEpilogueIsLeftWhereTheGroupReadsTheProductAnyway) {
  // x + dot -> norm: the sum is a result, so the product should add. The g * w of a norm's gradient should not be part
  // of a product.
  auto block = [](std::span<const Tensor> x) {
    Tensor y = x[0] + matmul(x[1], x[2]);
    return std::vector{y, rms_norm(y, x[3], 1e-5)};
  };
  auto g = fused(joint(block, {f32({40, 32}), f32({40, 16}), f32({16, 32}), f32({32})}));
  const Lines l = launches(*g);
  ASSERT_EQ(l.size(), 2u) << g->to_string();
  EXPECT_EQ(l[0], "[dot add]");
}

TEST(Fuse, SumsOverRowsAndAcross) {
  auto rows = [](std::span<const Tensor> x) { return std::vector{sum(x[0] + x[1], 0)}; };
  EXPECT_EQ(launches(*fused(joint(rows, {f32({100, 64}), f32({100, 64})}))), Lines{"[add reduce_sum]"});

  auto log_matmul = [](std::span<const Tensor> x) {
    return std::vector{logsumexp(unsqueeze(x[0], 2) + unsqueeze(x[1], 0), -2)};
  };
  auto g = fused(joint(log_matmul, {f32({20, 30}), f32({30, 40})}));
  EXPECT_EQ(launches(*g).size(), 1u) << g->to_string();
}

TEST(Fuse, CheapValuesAreComputedAgain) {
  auto mlp = [](std::span<const Tensor> x) {
    Tensor h = matmul(x[0], x[1]);
    Tensor y = matmul(gelu(h, "tanh"), x[2]);
    return grad(sum(y * y * x[3]), {x[0], x[1], x[2]});
  };
  const std::vector<TensorType> types{f32({64, 32}), f32({32, 96}), f32({96, 32}), f32({64, 32})};
  auto count = [](const Graph& g) {
    int big = 0;
    for (int32_t id = 0; id < g.size(); ++id)
      if (!g.node(id).op->view)
        for (const TensorType& t : g.node(id).outputs) big += t.shape == Shape{64, 96};
    return big;
  };
  auto with = fused(joint(mlp, types), {.low_memory = true}), usual = fused(joint(mlp, types)),
       outside = fused(joint(mlp, types), {.prologue = false}),
       without = fused(joint(mlp, types), {.duplicate = false});
  EXPECT_EQ(count(*with), 2) << with->to_string();    // h and its gradient: products compute the activation themselves
  EXPECT_EQ(count(*usual), 3) << usual->to_string();  // two products need it
  EXPECT_EQ(count(*outside), 3) << outside->to_string();
  EXPECT_GT(count(*without), 3);
  // For one product it is computed once in either place; a scaling is cheap.
  auto once = [](std::span<const Tensor> x) { return std::vector{matmul(gelu(x[0], "tanh"), x[1])}; };
  EXPECT_EQ(launches(*fused(joint(once, {f32({64, 96}), f32({96, 64})}))).size(), 1u);
  auto scaled = [](std::span<const Tensor> x) {
    const Tensor y = x[0] * x[1];
    return std::vector{matmul(y, x[2]), matmul(y, x[3]) + 1.0};
  };
  const TensorType w = f32({96, 32});
  EXPECT_EQ(launches(*fused(joint(scaled, {f32({1400, 96}), f32({1400, 1}), w, w}))).size(), 2u);
  EXPECT_EQ(launches(*fused(joint(scaled, {f32({64, 96}), f32({64, 1}), w, w}))).size(), 3u);  // it stays in the caches
}

TEST(Fuse, ElementsChosenByIndex) {
  const TensorType ids{kInt64, Device::cpu(), {12}};
  // Rows are read in place, for any ops after them.
  auto lookup = [](std::span<const Tensor> x) {
    return std::vector{(index_select(x[0], 0, x[1]) * x[2]).to(kBFloat16)};
  };
  EXPECT_EQ(launches(*fused(joint(lookup, {f32({5, 24}), ids, f32({12, 24})}))), Lines{"[index_select mul cast]"});
  // One element of a row together with the row's sums, from a value that is never stored in memory.
  auto pick = [](std::span<const Tensor> x) {
    const Tensor y = tanh(x[0]);
    return std::vector{logsumexp(y, -1, true) - gather(y, -1, unsqueeze(x[1], -1))};
  };
  auto g = fused(joint(pick, {f32({12, 24}), ids}));
  EXPECT_EQ(launches(*g).size(), 1u) << g->to_string();
  // Recomputed for each gathered element: only if these are no more than the elements.
  auto chosen = [](std::span<const Tensor> x) { return std::vector{index_select(tanh(x[0]), 0, x[1]) + 1.0}; };
  EXPECT_EQ(launches(*fused(joint(chosen, {f32({20, 24}), ids}))).size(), 1u);
  EXPECT_EQ(launches(*fused(joint(chosen, {f32({5, 24}), ids}))), (Lines{"tanh", "[index_select add]"}));
  // Along dims that change on the way, elements are gathered from memory.
  auto split = [](std::span<const Tensor> x) {
    return std::vector{index_select(reshape(exp(x[0]), {20, 24}), 0, x[1]) + 1.0};
  };
  EXPECT_EQ(launches(*fused(joint(split, {f32({10, 48}), ids}))), (Lines{"exp", "[index_select add]"}));
}

TEST(Fuse, GroupedProductsTakeTheirEpilogue) {
  auto experts = [](std::span<const Tensor> x) {
    const Tensor a = grouped_matmul(x[0], x[1], x[3]), b = grouped_matmul(x[0], x[2], x[3]);
    return std::vector{grouped_matmul(silu(a) * b, x[4], x[3]) * x[5]};
  };
  for (auto type : {f32, bf16}) {
    Ref<Graph> g = fuse(*joint(experts, {type({40, 16}),
                                         type({3, 16, 24}),
                                         type({3, 16, 24}),
                                         {kInt64, Device::cpu(), {4}},
                                         type({3, 24, 16}),
                                         type({40, 1})}),
                        {}, nullptr);
    ASSERT_TRUE(g);
    const Lines l = launches(*g);
    ASSERT_EQ(l.size(), type == f32 ? 3u : 4u) << g->to_string();
    EXPECT_EQ(l[0], "grouped_dot");
    if (type == f32) {
      EXPECT_TRUE(l[1].starts_with("[grouped_dot ")) << g->to_string();
    }
    EXPECT_TRUE(l.back().starts_with("[grouped_dot ")) << g->to_string();
  }
}

TEST(Fuse, WhatIsComputedAgainIsNotComputedWithTheFirst) {
  auto twice = [](std::span<const Tensor> x) { return std::vector{exp(x[0]) + 1.0, exp(x[0] * x[1])}; };
  const auto g = joint(twice, {f32({64, 64}), f32({64, 64})});
  EXPECT_EQ(launches(*fused(g)).size(), 1u);
  auto marked = make_ref<Graph>();
  marked->stage = g->stage;
  for (int32_t id = 0; id < g->size(); ++id) {
    Node n = g->node(id);
    n.backward = n.recomputed = id > g->outputs[0].node && !n.inputs.empty();
    if (n.op == &input_op) {
      marked->add_input(n.outputs[0]);
    } else {
      marked->add(std::move(n));
    }
  }
  marked->outputs = g->outputs;
  EXPECT_EQ(launches(*fused(marked)).size(), 2u);
}

TEST(Fuse, EffectsAndRandomBitsStayOutside) {
  auto noisy = [](std::span<const Tensor> x) {
    Tensor y = debug_print(x[0] * 2, "y");
    return std::vector{exp(y) + 1};
  };
  auto g = joint(noisy, {f32({3})});
  auto f = fuse(*g, {});
  ASSERT_TRUE(f);
  int prints = 0;
  for (int32_t id = 0; id < f->size(); ++id) prints += f->node(id).op == &debug_print_op;
  EXPECT_EQ(prints, 1);
}

TEST(Fuse, PartsHaveNames) {
  const FuseOptions none =
      fuse_options({.disabled = {"fuse_rows", "fuse_epilogue", "fuse_siblings", "fuse_duplicate"}});
  EXPECT_FALSE(none.rows || none.epilogue || none.siblings || none.duplicate);
  EXPECT_TRUE(none.prologue && fuse_options({}).rows);
  EXPECT_FALSE(fuse_options({.facts = {.prologues = false}}).prologue);
  int parts = 0;
  for (const Pass& p : passes_of(PassStage::kFused)) parts += std::string_view(p.name).starts_with("fuse_");
  EXPECT_EQ(parts, 5);
  auto g = joint([](std::span<const Tensor> x) { return std::vector{softmax(exp(x[0]), -1)}; }, {f32({20, 30})});
  EXPECT_GT(launches(*fused(g, none)).size(), launches(*fused(g)).size());
}

TEST(Fuse, WhyTellsTheRule) {
  auto block = [](std::span<const Tensor> x) {
    Tensor n = rms_norm(x[0], x[1], 1e-5);
    Tensor h = gelu(matmul(n, x[2]), "tanh");
    return std::vector{x[0] + matmul(h, x[3]), sum(exp(x[4]))};
  };
  auto g = joint(block, {f32({64, 32}), f32({32}), f32({32, 48}), f32({48, 32}), f32({7})});
  FusionReport r;
  ASSERT_TRUE(fuse(*g, {.prologue = false}, &r));
  EXPECT_LT(r.bytes_after, r.bytes_before);
  EXPECT_LT(r.launches_after, r.launches_before);
  EXPECT_NE(why(r, "reduce_sum", "rsqrt").find("are in one kernel"), std::string::npos)
      << why(r, "reduce_sum", "rsqrt");
  EXPECT_NE(why(r, "exp", "rsqrt").find("share no data"), std::string::npos) << why(r, "exp", "rsqrt");
  EXPECT_NE(why(r, "rsqrt", "dot").find("not in one kernel"), std::string::npos) << why(r, "rsqrt", "dot");
  EXPECT_THROW(why(r, "nonsense", "dot"), Error);
  EXPECT_NE(fusion_summary(r).find(" launches, "), std::string::npos);
  for (const auto& x : r.refused) EXPECT_FALSE(x.reason.empty());
}

TEST(Fuse, SeparateKernelsCountEachWriteAndEachReadOnce) {
  // Three kernels over different dims read x: three pairs, but two joins would save all extra reads.
  const double bytes = 24 * 32 * 40 * 4;
  auto softmaxes = [](const Tensor& x) { return std::vector{softmax(x, 0), softmax(x, 1), softmax(x, 2)}; };
  auto g = joint([&](std::span<const Tensor> x) { return softmaxes(x[0]); }, {f32({24, 32, 40})});
  const auto traffic = [](const FusionReport& r) {
    double sum = 0;
    for (const auto& x : r.separate) sum += x.bytes;
    return sum;
  };
  FusionReport r;
  fuse(*g, {}, &r);
  ASSERT_EQ(r.groups.size(), 3u);
  ASSERT_EQ(r.refused.size(), 3u);
  EXPECT_EQ(r.separate.size(), 2u);
  EXPECT_EQ(traffic(r), 2 * bytes);
  // A library call computes the value: one write and three reads.
  g = joint([&](std::span<const Tensor> x) { return softmaxes(cumsum(x[0], 0)); }, {f32({24, 32, 40})});
  fuse(*g, {}, &r);
  ASSERT_EQ(r.groups.size(), 4u);
  EXPECT_EQ(traffic(r), 4 * bytes);
}

TEST(Fuse, LibraryCallsBesideKernelsAreSeparate) {
  auto g = joint([](std::span<const Tensor> x) { return std::vector{cumsum(exp(x[0]), 0) * 2.0}; }, {f32({100})});
  FusionReport r;
  fuse(*g, {}, &r);
  ASSERT_EQ(r.separate.size(), 2u);
  for (const auto& x : r.separate) {
    EXPECT_EQ(x.reason, "cumsum is a library call");
    EXPECT_EQ(x.bytes, 2 * 400);  // written and read
    EXPECT_NE(why(r, x.from, x.to).find("cumsum is a library call"), std::string::npos);
  }
  EXPECT_STREQ(g->node(r.separate[0].from).op->name, "exp");
  EXPECT_STREQ(g->node(r.separate[1].to).op->name, "mul");
}

TEST(Fuse, RandomGraphsKeepTheirBits) {
  std::mt19937 random(5);
  for (int i = 0; i < 400; ++i) {
    Ref<Graph> g = testing::random_ops_graph(random, 20 + i % 60);
    const FuseOptions options{.rows = i % 7 != 1, .epilogue = true, .siblings = i % 5 != 1, .duplicate = i % 3 != 1};
    Ref<Graph> f = fuse(*g, options);
    if (!f) continue;
    verify(*f);
    verify_same_interface(*g, *f);
    std::vector<Tensor> args = random_arguments(random, *g);
    ASSERT_EQ(difference(*g, *f, args), "") << g->to_string() << f->to_string();
    const std::vector<Tensor> want = interpret(*g, args), got = run_kernels(*f, args);
    for (size_t k = 0; k < want.size(); ++k)
      ASSERT_EQ(difference(want[k], got[k]), "") << "result " << k << "\n" << g->to_string() << f->to_string();
  }
}

}  // namespace
}  // namespace weft
