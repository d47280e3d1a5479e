// accumulate() on meshes without pp, where its loop is unrolled: each rank has rows of every part, and training equals
// training on one device.
#include <gtest/gtest.h>

#include <map>

#include "distributed/launch/compile.h"
#include "distributed/plan/collective_names.h"
#include "models/moe/model.h"
#include "weft.h"

namespace weft::dist {
namespace {

int64_t placed_as(const PlanReport& p, std::string_view placement) {
  return std::ranges::count(p.placements(), placement);
}

// A row is [4], the product of a part is [rows, 6].
PlanReport plan_products(const std::string& mesh, int64_t parts, int64_t rows, bool derived = false) {
  Parameter w(zeros({4, 6}), "w");
  const auto fn = [&](Tensor x) {
    const Tensor batch = derived ? gelu(matmul(x, zeros({4, 4}))) : x;
    auto [loss, g] = accumulate(parts, batch, [&](const Tensor& part) {
      const Tensor l = gelu(matmul(part, w.value())).sum();
      return std::pair{l.detach(), grad(l, {w})[0]};
    });
    w.set(w.value() - g);
    return loss;
  };
  return plan(fn, {.mesh = Mesh::parse(mesh)}, zeros({parts * rows, 4}));
}

TEST(AccumulateOnMesh, ARankHasRowsOfEveryPart) {
  for (const int64_t parts : {2, 3, 4}) {
    SCOPED_TRACE(parts);
    EXPECT_GE(placed_as(plan_products("dp2", parts, 8), "[8@dp, 6]"), parts);
    EXPECT_EQ(placed_as(plan_products("dp2", parts, 8), "[8, 6]"), 0);
    EXPECT_GE(placed_as(plan_products("dp2,ep4", parts, 8), "[8@(dp,ep), 6]"), parts);
    // Gradients are added up first, then reduced once, with the loss.
    int64_t bytes = 0;
    const PlanReport p = plan_products("dp2", parts, 8);
    for (const PlannedCollective& c : p.collectives()) bytes += c.bytes;
    EXPECT_EQ(bytes, 4 * (4 * 6 + 1));
  }
}

// A batch that is computed from the arguments has their rows.
TEST(AccumulateOnMesh, ABatchThatIsComputed) {
  const PlanReport p = plan_products("dp2", 2, 8, true);
  EXPECT_GE(placed_as(p, "[8@dp, 6]"), 2);
  for (const PlannedCollective& c : p.collectives()) EXPECT_NE(c.kind, Collective::kAllGather) << c.why;
}

// Other values with reads of single entries say nothing about the batch.
TEST(AccumulateOnMesh, OtherViewsThatAreCut) {
  Parameter w(zeros({4, 6}), "w");
  const auto fn = [&](Tensor x) {
    const Tensor table = sigmoid(arange(12).to(kFloat32)).reshape({6, 2, 1});
    return (matmul(x, w.value()) * select(table, 0, 3).reshape({2}).sum()).sum();
  };
  const PlanReport p = plan(fn, {.mesh = Mesh::parse("dp4")}, zeros({12, 4}));
  EXPECT_GE(placed_as(p, "[12@dp, 6]"), 1) << p.to_string();
}

// A batch with a read of one entry is no batch of parts.
TEST(AccumulateOnMesh, OneEntryOfTheBatch) {
  Parameter w(zeros({4, 6}), "w");
  const auto fn = [&](Tensor x) { return matmul(x, w.value()).sum() + select(x.unsqueeze(1), 0, 0).sum(); };
  const PlanReport p = plan(fn, {.mesh = Mesh::parse("dp4")}, zeros({16, 4}));
  EXPECT_GE(placed_as(p, "[16@dp, 6]"), 1) << p.to_string();
}

// If a dimension does not divide the rows of a part, the next dimension is still used.
TEST(AccumulateOnMesh, OneOfTwoDimensionsDivides) {
  EXPECT_GE(placed_as(plan_products("dp3,fsdp2", 3, 2), "[2@fsdp, 6]"), 3);
}

// Takes the gradients of a loss from accumulate(): the loop is recorded, and its derivative is also unrolled.
TEST(AccumulateOnMesh, GradientsOutsideOfTheFunction) {
  const auto run = [](const std::string& mesh, int64_t parts, PlanReport* report) {
    manual_seed(3);
    Parameter w(randn({4, 6}, {.dtype = kFloat64}), "w");
    auto step = dist::compile(
        [&](Tensor x) {
          const Tensor loss = accumulate(parts, x, [&](const Tensor& p) { return gelu(matmul(p, w.value())).sum(); });
          w.set(w.value() - 0.1 * grad(loss, {w})[0]);
          return loss;
        },
        {.mesh = Mesh::parse(mesh)});
    const Tensor x = randn({24, 4}, {.dtype = kFloat64});
    step(x);
    std::vector<double> out{step(x).item<double>()};
    for (double v : w.value().to_vector<double>()) out.push_back(v);
    if (report) *report = step.plan();
    return out;
  };
  for (const int64_t parts : {2, 3}) {
    PlanReport p;
    const std::vector<double> want = run("", parts, nullptr), got = run("dp2", parts, &p);
    EXPECT_GE(placed_as(p, str_cat("[", 24 / parts, "@dp, 6]")), parts);
    EXPECT_EQ(placed_as(p, str_cat("[", 24 / parts, ", 6]")), 0);
    for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-12 * (1 + std::abs(want[i])));
  }
}

TEST(AccumulateOnMesh, RowsThatDoNotDivideAreReported) {
  const PlanReport p = plan_products("dp4", 4, 2);
  EXPECT_GE(placed_as(p, "[2@dp:0, 6]"), 4) << p.to_string();
  EXPECT_TRUE(std::ranges::any_of(p.notes(), [](const std::string& note) {
    return note.find("2 rows do not divide over dp (4 ranks): 2 ranks compute the same rows") != note.npos;
  })) << p.to_string();
}

struct Trained {
  std::vector<double> losses, norms;
  std::vector<std::pair<std::string, std::vector<double>>> cells;
};

struct Case {
  std::string mesh;
  double capacity = 0;
  int64_t parts = 2, batch = 8;
  bool sequence = true;
  bool plain = false;  // learned positions, no dense layer, no expert that all tokens share
};

Trained train(const Case& c, PlanReport* report = nullptr) {
  moe::Config config;
  config.vocab = 48;
  config.context = 16;
  config.layers = 2;
  config.heads = config.kv_heads = 4;
  config.dim = 32;
  config.experts = 4;
  config.top_k = 2;
  config.ffn = 32;
  config.shared_ffn = c.plain ? 0 : 32;
  config.dense_layers = c.plain ? 0 : 1;
  config.rope = !c.plain;
  config.dense_ffn = 48;
  config.capacity_factor = c.capacity;
  config.bias_rate = 1e-3;
  manual_seed(7);
  moe::Model model(config);
  model.to(kFloat64);
  model.train();
  optim::AdamW opt(optim::decay_groups(model.parameters(), 0.1), {.lr = 1e-3});
  const auto fn = [&](Tensor tokens, Tensor targets) {
    const nn::BatchShare share = nn::BatchShare::of(c.parts, targets);
    auto [sum, grads] = accumulate(c.parts, std::pair{tokens, targets}, [&](const Tensor& x, const Tensor& y) {
      nn::LossOut l = model.loss(x, y, share);
      std::vector<Tensor> g = grad(l.loss, opt.parameters());
      return std::pair{std::pair{l.loss.detach(), l.expert_counts.detach()}, std::move(g)};
    });
    auto [g, norm] = optim::clip_grad_norm(grads, 1.0);
    opt.step(g);
    model.update_balance(sum.second);
    return std::vector<Tensor>{sum.first, norm};
  };
  Plan plan;
  plan.sequence = c.sequence;
  manual_seed(11);
  CompileOptions options{.mesh = Mesh::parse(c.mesh), .plan = plan};
  options.communication =
      std::make_shared<CommunicationOptions>(CommunicationOptions{.bucket = false, .overlap = false});
  auto step = dist::compile(fn, options);
  Trained r;
  for (int i = 0; i < 2; ++i) {
    const Tensor tokens = randint(0, config.vocab, {c.batch, 16}, {.dtype = kInt32}),
                 targets = randint(0, config.vocab, {c.batch, 16}, {.dtype = kInt32});
    const std::vector<Tensor> out = step(tokens, targets);
    r.losses.push_back(out[0].item<double>());
    r.norms.push_back(out[1].item<double>());
  }
  if (report) *report = step.plan();
  for (auto& [name, p] : model.named_parameters()) r.cells.emplace_back(name, p.value().to_vector<double>());
  return r;
}

void expect_one_device(const Case& c) {
  SCOPED_TRACE(str_cat(c.mesh, ", ", c.parts, " parts of ", c.batch, ", capacity ", c.capacity));
  Case alone = c;
  alone.mesh = "";
  Trained got;
  try {
    got = train(c);
  } catch (const Error& e) {
    ADD_FAILURE() << e.what();
    return;
  }
  const Trained want = train(alone);
  for (size_t i = 0; i < want.losses.size(); ++i) {
    EXPECT_NEAR(got.losses[i], want.losses[i], 1e-9 * std::abs(want.losses[i])) << "loss of step " << i;
    EXPECT_NEAR(got.norms[i], want.norms[i], 1e-9 * std::abs(want.norms[i])) << "norm of step " << i;
  }
  for (size_t k = 0; k < want.cells.size(); ++k) {
    double scale = 1e-3, worst = 0;
    for (size_t i = 0; i < want.cells[k].second.size(); ++i) {
      scale = std::max(scale, std::abs(want.cells[k].second[i]));
      worst = std::max(worst, std::abs(got.cells[k].second[i] - want.cells[k].second[i]));
    }
    EXPECT_LE(worst, 1e-9 * scale) << want.cells[k].first;
  }
}

// Each part is placed like a batch of its own: its nodes keep their names and phases.
TEST(AccumulateOnMesh, APartIsPlacedAsABatch) {
  for (const char* mesh : {"tp2", "dp2,tp2", "fsdp2,cp2", "dp2,tp2,ep4(dp,tp)"}) {
    for (const bool sequence : {false, true}) {
      SCOPED_TRACE(str_cat(mesh, sequence ? "" : ", whole sequences"));
      PlanReport one, three;
      train({.mesh = mesh, .parts = 1, .batch = 4, .sequence = sequence, .plain = true}, &one);
      train({.mesh = mesh, .parts = 3, .batch = 12, .sequence = sequence, .plain = true}, &three);
      const auto parameters = [](const PlanReport& p) {
        std::string text;
        for (const PlannedCell& c : p.parameters()) text += str_cat(c.name, " ", c.use, " ", c.why, "\n");
        return text;
      };
      EXPECT_EQ(parameters(three), parameters(one));
      const auto counts = [](const PlanReport& p) {
        std::map<std::string, int> n;
        for (const PlannedCollective& c : p.collectives())
          if (c.phase != Phase::kUpdate && c.bytes > 1000)
            ++n[str_cat(to_string(c.phase), " ", title(c.kind), "@", c.axes, " of ", c.what)];
        return n;
      };
      // Gradients are added up before they are reduced; values of a part are moved for each part.
      for (const auto& [what, n] : counts(one)) {
        const int got = counts(three)[what];
        EXPECT_TRUE(got == n || got == 3 * n) << what << ": " << n << " for one part, " << got << " for three";
      }
      for (const auto& [what, n] : counts(three)) EXPECT_EQ(counts(one).count(what), 1) << what;
    }
  }
}

TEST(AccumulateOnMesh, ExpertsTrainAsOnOneDevice) {
  for (const char* mesh : {"dp2", "ep4,cp2", "dp2,ep2", "fsdp2,ep2,cp2", "ep2,tp2", "dp2,tp2,ep4(dp,tp)",
                           "dp2,cp2,tp2,ep4(cp,tp)", "dp2,cp2,ep4(dp,cp)"})
    for (const int64_t parts : {2, 3})
      expect_one_device({.mesh = mesh, .capacity = 0, .parts = parts, .batch = 4 * parts});
}

TEST(AccumulateOnMesh, ExpertsWithACapacityTrainAsOnOneDevice) {
  for (const char* mesh : {"ep4,cp2", "dp2,tp2,ep4(dp,tp)", "fsdp2,cp2"})
    expect_one_device({.mesh = mesh, .capacity = 1.25, .parts = 3, .batch = 12});
}

// Tokens are split over the experts' axes that do not split rows, also after a sequence in head-tail order.
TEST(AccumulateOnMesh, ExpertsSplitOverMoreAxesThanRows) {
  expect_one_device({.mesh = "dp2,cp2,tp2,ep4(dp,tp)", .parts = 2, .batch = 8, .sequence = false});
  // Two rows allow no such split, so the weights of experts are gathered.
  expect_one_device({.mesh = "ep4,cp2", .parts = 2, .batch = 4});
  expect_one_device({.mesh = "tp2,dp2,cp2,ep4(tp,dp)", .parts = 2, .batch = 4, .sequence = false});
}

// Without sequence parallelism, values of tokens may be split over tp by columns, until experts need them.
TEST(AccumulateOnMesh, ExpertsTakeTheAxesOfColumns) {
  for (const char* mesh : {"dp2,tp2,ep4(dp,tp)", "cp2,tp2,ep4(cp,tp)", "tp2,ep2(tp)"})
    expect_one_device({.mesh = mesh, .parts = 2, .batch = 16, .sequence = false, .plain = true});
}

}  // namespace
}  // namespace weft::dist
