// A strategy outside the framework. Along mesh dimension "time", each rank has a part of the sequences (dim 1 of the
// arguments) and of the parameters (at rest). Running sums over time have a lowering: each rank sums its own part, and
// adds the totals of the ranks before it.
#include <gtest/gtest.h>

#include <functional>

#include "distributed/launch/compile.h"
#include "distributed/plan/plan_text.h"
#include "distributed/propagate/local_op.h"
#include "distributed/strategies/strategy.h"
#include "framework/base/testing/error_of.h"
#include "framework/dispatch/dispatch.h"
#include "ops/core/collectives/collective.h"
#include "ops/core/core.h"
#include "weft.h"

namespace weft::dist {
namespace {

using testing::error_of;

class RunningSum final : public Lowering {
 public:
  explicit RunningSum(const Axes& time) : time_(time) {}

  bool claim(SplitNode& n, std::string& note) const override {
    if (n.node.op != &cumsum_op || n.node.attrs.i("dim") != 1) return false;
    const auto f = static_cast<size_t>(n.rule.map.in[0][1][0]);
    const int64_t extent = n.rule.map.factors[f].size;
    if (extent % n.mesh.parts(time_) != 0) {
      note = str_cat("time: cumsum at ", n.node.line.to_string(), " over ", extent, " gathers its operand");
      return false;
    }
    n.split[f] = one_segment(extent, time_);
    return true;
  }

  std::vector<Tensor> emit(const LocalCall& c) const override {
    const Tensor& x = c.in[0];
    const int64_t n = c.locals.mesh().parts(time_);
    const Tensor own = cumsum(x, 1, c.node.attrs.b("reverse")), total = sum(x, {1}, true);
    const Tensor totals =
        dispatch(all_gather_op, {&total}, {{"axes", c.locals.mesh().name(time_)}, {"dim", int64_t{1}}, {"parts", n}});
    Shape along = Shape::filled(x.dim(), 1);
    along[1] = n;
    const Tensor ranks = reshape(arange(n, {.dtype = kInt64}), along), rank = c.locals.coordinate(time_);
    const Tensor before = c.node.attrs.b("reverse") ? gt(ranks, rank) : lt(ranks, rank);
    return {own + sum(where(before, totals, zeros_like(totals)), {1}, true)};
  }

 private:
  const Axes time_;
};

constexpr std::string_view kDimensions[] = {"time"};
constexpr std::string_view kSums[] = {"split", "gather"};
constexpr OptionRow kOptions[] = {
    {.name = "time_sums", .fallback = "split", .allowed = kSums, .help = "how running sums over time are computed"},
};

void annotate(StrategyContext& s) {
  const Axes time = s.axes("time");
  if (time.empty()) return;
  const int64_t n = s.mesh.parts(time);
  for (size_t i = 0; i < s.graph.inputs.size(); ++i) {
    const Shape& shape = s.graph.type(s.graph.inputs[i]).shape;
    if (shape.size() > 1 && shape[1] % n == 0) s.pins.inputs[i].dims[1] = one_segment(shape[1], time);
  }
  for (ParameterPin& p : s.parameters) {
    if (p.shape.empty() || p.shape[0] % n != 0 || p.sharded_dim >= 0) continue;
    p.sharded = time;
    p.sharded_dim = 0;
    p.sharded_at_rest = p.gather_again = true;
    p.why_sharded = "time";
  }
  if (text_of(kOptions[0], s.plan) == "split") s.pins.lowerings.push_back(std::make_shared<RunningSum>(time));
}

std::string avoid(const Mesh&, const PlannedCollective& c) {
  return c.axes == "time" && c.subject == Subject::kActivation ? "time_sums = split sends totals only" : "";
}
std::vector<int> sizes(const MeshSearch& s) { return powers_of_2(s, s.world); }

const Strategy kTimeParallel = {.name = "time_parallel",
                                .dimensions = kDimensions,
                                .options = kOptions,
                                .annotate = annotate,
                                .avoid = avoid,
                                .sizes = sizes,
                                .level = 2};

// ---- tests ----

struct Model {
  Parameter in{randn({4, 6}, {.dtype = kFloat64}), "in"}, out{randn({6, 2}, {.dtype = kFloat64}), "out"};
  optim::AdamW opt{{in, out}, {.lr = 1e-2}};
  Tensor operator()(const Tensor& x) {
    const Tensor history = cumsum(tanh(matmul(x, in.value())), 1);
    const Tensor loss = mean(square(matmul(history, out.value())));
    opt.step(grad(loss, opt.parameters()));
    return loss;
  }
};

Plan with(const char* sums) {
  Plan p;
  p.strategies = {&kTimeParallel};
  if (*sums) p.more = {{"time_sums", sums}};
  return p;
}

std::vector<double> losses(const CompileOptions& options) {
  manual_seed(3);
  Model model;
  auto step = dist::compile([&](Tensor x) { return model(x); }, options);
  std::vector<double> all;
  for (int i = 0; i < 4; ++i) all.push_back(step(randn({4, 12, 4}, {.dtype = kFloat64})).item<double>());
  return all;
}

PlanReport plan_of(const Plan& p, const std::string& mesh = "time4") {
  manual_seed(3);
  Model model;
  return plan([&](Tensor x) { return model(x); }, {.mesh = Mesh::parse(mesh), .plan = p},
              zeros({4, 12, 4}, {.dtype = kFloat64}));
}

// The largest all-gather of activations, in bytes.
int64_t gathered(const PlanReport& r) {
  int64_t most = 0;
  for (const PlannedCollective& c : r.collectives())
    if (c.kind == Collective::kAllGather && c.subject == Subject::kActivation) most = std::max(most, c.bytes);
  return most;
}

TEST(ToyStrategy, TrainsAsOneDevice) {
  const std::vector<double> one = losses({});
  for (const char* mesh : {"time2", "time4", "dp2,time2", "time2,fsdp2"})
    for (const char* sums : {"split", "gather"}) {
      const std::vector<double> many = losses({.mesh = Mesh::parse(mesh), .plan = with(sums)});
      for (size_t i = 0; i < one.size(); ++i)
        EXPECT_NEAR(many[i], one[i], 1e-9 * std::abs(one[i])) << mesh << " " << sums << ", step " << i;
    }
}

TEST(ToyStrategy, ParametersAreShardedAtRest) {
  for (const PlannedCell& c : plan_of(with("")).parameters()) {
    const std::string got = str_cat(c.rest, " ", c.use, " ", c.why);
    EXPECT_EQ(got, c.name == "in" ? "[4@time, 6] [4, 6] time: dim 0 over time" : "[6, 2] [6, 2] a copy on every rank");
  }
}

TEST(ToyStrategy, SplitSumsSendTotalsOnly) {
  EXPECT_EQ(gathered(plan_of(with("gather"))), 4 * 12 * 6 * 8);
  EXPECT_EQ(gathered(plan_of(with("split"))), 4 * 4 * 6 * 8);
  EXPECT_EQ(gathered(plan_of(with(""))), 4 * 4 * 6 * 8);
}

TEST(ToyStrategy, AutomaticTriesItsDimension) {
  Plan p = with("");
  p.choose = true;
  p.world = 4;
  const PlanReport r = plan_of(p, "");
  std::string tried;
  for (const std::string& note : r.notes()) tried += note + "\n";
  for (const RejectedCandidate& other : r.rejected) tried += other.text + "\n";
  for (const char* mesh : {"time4", "dp2,time2", "fsdp2,time2", "time2,tp2"})
    EXPECT_NE(tried.find(str_cat(mesh, ",")), tried.npos) << mesh << " in\n" << tried;
}

TEST(ToyStrategy, ForbidNamesItsSetting) {
  Model model;
  const std::string error = error_of([&] {
    plan([&](Tensor x) { return model(x); },
         {.mesh = Mesh::parse("time4"), .plan = with("gather"), .forbid = {"allgather@time:activations"}},
         zeros({4, 12, 4}, {.dtype = kFloat64}));
  });
  EXPECT_NE(error.find("to avoid it: time_sums = split sends totals only"), error.npos) << error;
}

TEST(ToyStrategy, OptionsAreCheckedAndSaved) {
  EXPECT_EQ(error_of([] { plan_of({}); }),
            "mesh time4: no strategy for dimension 'time'; need dp, fsdp, ep, tp, cp, pp or replica");
  EXPECT_EQ(error_of([] { plan_of(with("none")); }), "plan: time_sums is 'none'; need split or gather");
  Plan more = with("split");
  more.more.emplace_back("time_sum", "gather");
  EXPECT_EQ(error_of([&] { plan_of(more); }),
            "plan: more has 'time_sum', which is no option of a strategy of this plan; need time_sums");
  more.more.back().first = "time_sums";
  EXPECT_EQ(error_of([&] { plan_of(more); }), "plan: more has 'time_sums' twice");
  const std::string text = plan_text(plan_of(with("gather")));
  EXPECT_NE(text.find("\ntime_sums gather\n"), text.npos) << text;
  EXPECT_EQ(text_of(kOptions[0], parse_plan(text, {&kTimeParallel}).plan), "gather");
  EXPECT_NE(error_of([&] { parse_plan(text); }), "");
}

}  // namespace
}  // namespace weft::dist
