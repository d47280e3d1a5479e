// Large logits that only cross_entropy reads are never whole in memory. A note gives the reason for logits that stay.
#include <gtest/gtest.h>

#include "compiler/exec/testing/test_programs.h"
#include "compiler/passes/pass.h"
#include "compiler/passes/pipeline.h"
#include "framework/autodiff/grad.h"
#include "framework/dispatch/capture.h"
#include "ops/composite/composite.h"
#include "ops/core/core.h"

namespace weft {
namespace {

struct Problem {
  int64_t n = 1040, d = 16, v = 2053;  // a bit more than 8 MiB of logits, three chunks of rows
  DType dtype = kFloat32;
  bool bias = false;
  bool flat = false;  // x[N, D], else x[2, N / 2, D]
  CrossEntropyOptions options = {};

  std::vector<Tensor> operands() const {
    testing::Random random(11);
    const Shape rows = flat ? Shape{n} : Shape{2, n / 2};
    Shape points = rows;
    points.push_back(d);
    Tensor t = testing::random_tensor(kInt64, rows, random, 0, static_cast<double>(v - 1));
    return {testing::random_tensor(dtype, points, random, -1, 1),
            testing::random_tensor(dtype, {v, d}, random, -0.5, 0.5), testing::random_tensor(dtype, {v}, random, -1, 1),
            t};
  }
  /// Loss and its gradients, logits flattened as programs do.
  std::vector<Tensor> step(const Tensor& x_in, const Tensor& w_in, const Tensor& b_in, const Tensor& t) const {
    Tensor x = x_in.requires_grad(), w = w_in.requires_grad(), b = b_in.requires_grad();
    Tensor h = x;
    for (int i = 0; i < 20; ++i) h = (tanh(h) + x) * 0.5;  // earlier ops are not examined
    const Tensor logits = linear(h, w, bias ? Arg(b) : Arg(Tensor())).reshape({n, v});
    const Tensor loss = cross_entropy(logits, t.reshape({n}), options);
    std::vector<Tensor> wrt{x, w};
    if (bias) wrt.push_back(b);
    std::vector<Tensor> out{loss};
    for (const Tensor& g : grad(loss * 3.0, wrt)) out.push_back(g);
    return out;
  }
  TensorFn fn() const {
    return [p = *this](std::span<const Tensor> in) { return p.step(in[0], in[1], in[2], in[3]); };
  }
};

int count(const Graph& g, std::string_view op) {
  int n = 0;
  for (int32_t id = 0; id < g.size(); ++id) n += g.node(id).op->name == op;
  return n;
}

Ref<Graph> passed(const TensorFn& fn, const std::vector<Tensor>& in, std::vector<PassReport>* report = nullptr,
                  PassFacts facts = {}) {
  std::vector<TensorType> types;
  for (const Tensor& t : in) types.push_back(t.type());
  return run_passes(capture_graph(fn, types), passes_of(PassStage::kJoint), {.report = report, .facts = facts});
}

std::string notes_of(const std::vector<PassReport>& report) {
  std::string all;
  for (const PassReport& r : report)
    for (const std::string& n : r.notes) all += n + "\n";
  return all;
}

TEST(LinearCrossEntropyPass, LossAndGradientsComeFromOneOp) {
  for (double smoothing : {0.0, 0.1})
    for (double z : {0.0, 1e-4})
      for (bool bias : {false, true}) {
        const Problem p{.bias = bias, .options = {.label_smoothing = smoothing, .z_loss = z}};
        Ref<Graph> g = passed(p.fn(), p.operands());
        EXPECT_EQ(count(*g, "linear_cross_entropy_grad"), 1) << smoothing << ' ' << z << ' ' << bias;
        EXPECT_EQ(count(*g, "linear_cross_entropy") + count(*g, "dot") + count(*g, "gather"), 0);
      }
}

std::vector<Tensor> run(const Problem& p, const std::vector<Tensor>& in, const CompileOptions& options) {
  auto step = compile([&](std::vector<Tensor> a) { return p.step(a[0], a[1], a[2], a[3]); }, options);
  return step(in);
}

TEST(LinearCrossEntropyPass, F32HasTheBitsOfThePlainForm) {
  // 1025 rows: the last chunk would have one row, whose products have an order of sums of their own.
  for (int64_t n : {1040, 1025})
    for (double smoothing : {0.0, 0.1})
      for (double z : {0.0, 1e-4}) {
        Problem p{.n = n, .options = {.ignore_index = 7, .label_smoothing = smoothing, .z_loss = z}};
        if (n % 2) p.flat = true;
        const std::vector<Tensor> in = p.operands(), plain = p.step(in[0], in[1], in[2], in[3]);
        for (const char* numerics : {"fast", "eager"}) {
          const std::vector<Tensor> got = run(p, in, {.numerics = numerics, .verify = true});
          for (size_t i = 0; i < plain.size(); ++i)
            EXPECT_TRUE(testing::same_bits(got[i], plain[i])) << n << ' ' << smoothing << ' ' << z << ' ' << i;
        }
        EXPECT_EQ(count(*passed(p.fn(), in, nullptr, {.eager_bits = true}), "linear_cross_entropy_grad"), 1);
      }
}

TEST(LinearCrossEntropyPass, ResultsAreThoseOfThePlainForm) {
  for (DType t : {kFloat32, kBFloat16})
    for (double smoothing : {0.0, 0.1}) {
      const Problem p{.dtype = t, .bias = true, .options = {.ignore_index = 7, .label_smoothing = smoothing}};
      const std::vector<Tensor> in = p.operands();
      const std::vector<Tensor> plain = p.step(in[0], in[1], in[2], in[3]), fast = run(p, in, {.verify = true}),
                                eager = run(p, in, {.numerics = "eager"});
      // Sums of D products, V terms and N rows in any order, each term with the errors before it. 16-bit layers round
      // the logits (at most D / 2 + 1 in size), their gradient and the results.
      const double terms = static_cast<double>(p.d + 2 * p.v + p.n), wide = static_cast<double>(p.d + 2 + 4);
      for (size_t i = 0; i < plain.size(); ++i) {
        EXPECT_TRUE(testing::same_bits(eager[i], plain[i])) << to_string_view(t) << ' ' << i;
        EXPECT_TRUE(testing::close(fast[i], plain[i], t, t == kFloat32 ? terms : wide))
            << to_string_view(t) << ' ' << i;
      }
      EXPECT_EQ(count(*passed(p.fn(), in, nullptr, {.eager_bits = true}), "linear_cross_entropy_grad"), 0);
    }
}

TEST(LinearCrossEntropyPass, ThePlanHoldsNoLogits) {
  const Problem p{.n = 2048, .d = 64, .v = 32000};
  const std::vector<Tensor> in = p.operands();
  auto step = compile([&](std::vector<Tensor> a) { return p.step(a[0], a[1], a[2], a[3]); });
  step(in);
  EXPECT_EQ(step.stats().planned_peak_bytes, step.stats().measured_peak_bytes);
  EXPECT_LT(step.stats().planned_peak_bytes, p.n * p.v * 4 / 2);
  EXPECT_NE(step.report().find("logits f32[2048, 32000]"), std::string::npos) << step.report();
  EXPECT_NE(step.report().find("are never whole in memory"), std::string::npos);
  EXPECT_NE(testing::error_of([&] { step.why("exp", "dot"); }).find("are never whole in memory"), std::string::npos);
}

// Small logits are whole, unless the memory budget is too small for them.
TEST(LinearCrossEntropyPass, IsUsedWhereTheBudgetNeedsIt) {
  const Problem p{.n = 2048, .v = 700};
  const std::vector<Tensor> in = p.operands(), plain = p.step(in[0], in[1], in[2], in[3]);
  auto peak = [&](const CompileOptions& options, bool used) {
    auto step = compile([&](std::vector<Tensor> a) { return p.step(a[0], a[1], a[2], a[3]); }, options);
    const std::vector<Tensor> got = step(in);
    for (size_t i = 0; i < plain.size(); ++i) EXPECT_TRUE(testing::same_bits(got[i], plain[i])) << i;
    EXPECT_EQ(count(step.graph("joint"), "linear_cross_entropy_grad"), used ? 1 : 0) << step.report();
    EXPECT_EQ(step.report().find("are never whole in memory") != std::string::npos, used);
    EXPECT_EQ(step.stats().planned_peak_bytes, step.stats().measured_peak_bytes);
    return step.stats().planned_peak_bytes;
  };
  const int64_t free = peak({}, false);
  EXPECT_EQ(peak({.memory_budget = free}, false), free);
  const int64_t without_logits = peak({.memory_budget = free - 1}, true);
  EXPECT_LT(without_logits, free - p.n * p.v * 2);
  auto disabled = compile([&](std::vector<Tensor> a) { return p.step(a[0], a[1], a[2], a[3]); },
                          {.memory_budget = without_logits, .disable = {"linear_cross_entropy"}});
  EXPECT_THROW(disabled(in), Error);
}

TEST(LinearCrossEntropyPass, LogitsThatOthersReadStayAndSayWhy) {
  const Problem p;
  std::vector<PassReport> report;
  auto also_read = [&](std::span<const Tensor> in) {
    Tensor x = in[0].requires_grad();
    const Tensor logits = linear(x, in[1]);
    const Tensor loss = cross_entropy(logits, in[3]);
    return std::vector<Tensor>{loss, grad(loss, std::vector<Tensor>{x})[0], argmax(logits, -1)};
  };
  Ref<Graph> g = passed(also_read, p.operands(), &report);
  EXPECT_EQ(count(*g, "linear_cross_entropy_grad"), 0);
  EXPECT_NE(notes_of(report).find("argmax"), std::string::npos) << notes_of(report);
  report.clear();
  auto not_linear = [&](std::span<const Tensor> in) {
    Tensor x = in[0].requires_grad();
    const Tensor loss = cross_entropy(linear(x, in[1]) * 2.0, in[3]);
    return std::vector<Tensor>{loss, grad(loss, std::vector<Tensor>{x})[0]};
  };
  EXPECT_EQ(count(*passed(not_linear, p.operands(), &report), "linear_cross_entropy_grad"), 0);
  const Problem small{.n = 512, .v = 96};
  EXPECT_EQ(count(*passed(small.fn(), small.operands()), "linear_cross_entropy_grad"), 0);
  // Through logits without a tape no gradient reaches the layer.
  auto cut = [&](std::span<const Tensor> in) {
    Tensor x = in[0].requires_grad();
    Tensor logits;
    {
      NoGrad guard;
      logits = linear(x, in[1]);
    }
    const Tensor loss = cross_entropy(logits, in[3]) + x.sum();
    return std::vector<Tensor>{loss, grad(loss, std::vector<Tensor>{x})[0]};
  };
  const std::vector<Tensor> in = p.operands();
  auto step = compile([&](std::vector<Tensor> a) { return cut(a); });
  const std::vector<Tensor> got = step(in);
  EXPECT_TRUE(testing::same_bits(got[1], ones(in[0].shape())));
}

TEST(LinearCrossEntropyPass, WeightsThatNeedTheLossTakeASecondPass) {
  const Problem p;
  auto squared = [&](std::span<const Tensor> in) {
    Tensor x = in[0].requires_grad(), w = in[1].requires_grad();
    const Tensor loss = cross_entropy(linear(x, w), in[3]);
    std::vector<Tensor> out{loss};
    for (const Tensor& g : grad(square(loss), std::vector<Tensor>{x, w})) out.push_back(g);
    return out;
  };
  Ref<Graph> g = passed(squared, p.operands());
  EXPECT_EQ(count(*g, "linear_cross_entropy"), 1);
  EXPECT_EQ(count(*g, "linear_cross_entropy_grad"), 1);
}

}  // namespace
}  // namespace weft
