// Steps in a pipeline have the bits of one device with the same microbatches.
#include <gtest/gtest.h>

#include "distributed/launch/compile.h"
#include "distributed/pipeline/schedules.h"
#include "distributed/plan/mesh_plan.h"
#include "distributed/stages/testing/trainer_step.h"
#include "framework/base/switches.h"
#include "framework/base/testing/error_of.h"
#include "framework/testing/compare.h"
#include "models/gpt/config.h"
#include "models/gpt/model.h"
#include "models/llama/config.h"
#include "models/moe/config.h"
#include "weft.h"

namespace weft::dist {
namespace {

using weft::testing::error_of;
using weft::testing::same_bits;
using weft::testing::trainer_step;
using weft::testing::TrainerStep;

constexpr int kSteps = 2;

struct Trained {
  std::vector<Tensor> results;
  std::vector<std::pair<std::string, Tensor>> cells;
  CompileStats stats;
};

Trained train(const nn::ModelFamily& family, const std::string& preset, int64_t microbatches,
              const nn::ConfigMap& changes, const CompileOptions& options) {
  const TrainerStep s = trainer_step(family, preset, microbatches, changes);
  auto step = dist::compile([&](Tensor x, Tensor y) { return s.fn(std::vector<Tensor>{x, y}); }, options);
  Trained t;
  for (int i = 0; i < kSteps; ++i)
    for (const Tensor& r : step(s.args[0], s.args[1])) t.results.push_back(r);
  for (const auto& [name, cell] : s.model->named_cells()) t.cells.emplace_back(name, cell.value());
  for (const auto& [name, cell] : s.optimizer->named_cells()) t.cells.emplace_back(name, cell.value());
  t.stats = step.stats();
  return t;
}

void expect_same(const Trained& got, const Trained& want) {
  ASSERT_EQ(got.results.size(), want.results.size());
  for (size_t i = 0; i < got.results.size(); ++i)
    EXPECT_TRUE(same_bits(got.results[i], want.results[i])) << "result " << i % 5 << " of step " << i / 5;
  ASSERT_EQ(got.cells.size(), want.cells.size());
  for (size_t i = 0; i < got.cells.size(); ++i)
    EXPECT_TRUE(same_bits(got.cells[i].second, want.cells[i].second)) << got.cells[i].first;
}

void expect_bits_of_one_device(const nn::ModelFamily& family, const std::string& preset, const nn::ConfigMap& changes) {
  for (int64_t microbatches : {4, 8}) {
    const Trained want = train(family, preset, microbatches, changes, {});
    for (int ranks : {2, 4}) {
      CompileOptions o{.mesh = Mesh{{"pp", ranks}}};
      for (const std::string& schedule : pipeline::schedule_names()) {
        SCOPED_TRACE(str_cat(schedule, " on ", ranks, " ranks, ", microbatches, " microbatches"));
        o.plan.pipeline = schedule;
        if (schedule == "dualpipe_v" && microbatches < 2 * ranks) {
          EXPECT_EQ(error_of([&] { train(family, preset, microbatches, changes, o); }),
                    "dualpipe_v: got 4 microbatches for 4 ranks; need 2 for each rank, 8 or more; zb_v accepts fewer");
          continue;
        }
        const Trained got = train(family, preset, microbatches, changes, o);
        expect_same(got, want);
        EXPECT_EQ(got.stats.planned_peak_bytes, got.stats.measured_peak_bytes);
      }
    }
  }
}

TEST(PipelineStep, Gpt) { expect_bits_of_one_device(gpt::family(), "gpt_tiny", {{"dropout", "0.1"}, {"layers", "8"}}); }
TEST(PipelineStep, Llama) { expect_bits_of_one_device(llama::family(), "llama_tiny", {{"layers", "8"}}); }
TEST(PipelineStep, Moe) { expect_bits_of_one_device(moe::family(), "moe_tiny", {{"layers", "8"}}); }

// The pass that checks and predicts tables gives equal figures for a real step and for a chain of stages.
TEST(PipelineStep, TablesOfAStepHaveTheFiguresOfTheSchedule) {
  const TrainerStep s = trainer_step(gpt::family(), "gpt_tiny", 8, {{"layers", "8"}});
  for (const std::string& schedule : pipeline::schedule_names()) {
    SCOPED_TRACE(schedule);
    CompileOptions o{.mesh = Mesh{{"pp", 4}}};
    o.plan.pipeline = schedule;
    const MeshPartition plan = plan_mesh(s.joint, o);
    const PipelinePartition& p = *plan.pipeline;
    std::vector<pipeline::StageLink> links;
    for (const Crossing& c : p.crossings) links.push_back(c.link);
    const int stages = p.cut.stages;
    const pipeline::ActionCosts unit = pipeline::ActionCosts::equal(stages);
    const pipeline::Simulation got = pipeline::simulate(p.table, pipeline::StageLinks(stages, links), unit),
                               want = pipeline::simulate(pipeline_table(schedule, 4, 8), pipeline::StageLinks(stages),
                                                         unit);
    EXPECT_EQ(got.makespan, want.makespan);
    EXPECT_EQ(got.idle(), want.idle());
    EXPECT_EQ(got.idle_inside(), want.idle_inside());
    for (size_t r = 0; r < 4; ++r) EXPECT_EQ(got.ranks[r].alive, want.ranks[r].alive) << "rank " << r;
  }
}

// Under a memory budget, stages compute more forward values again or differ in work, with the same bits. Every budget
// from the least to the peak without a budget can be met.
void expect_budgets(const std::string& schedule, int ranks, bool runs) {
  SCOPED_TRACE(str_cat(schedule, " on ", ranks, " ranks"));
  const nn::ConfigMap changes{{"dropout", "0.1"}, {"layers", "8"}};
  const TrainerStep s = trainer_step(gpt::family(), "gpt_tiny", 8, changes);
  CompileOptions o{.mesh = Mesh{{"pp", ranks}}};
  o.plan.pipeline = schedule;
  std::string report;
  const auto peak_of = [&](int64_t budget) {
    o.memory_budget = budget;
    auto step = dist::compile([&](Tensor x, Tensor y) { return s.fn(std::vector<Tensor>{x, y}); }, o);
    step.prepare(s.args[0], s.args[1]);
    report = step.report();
    return step.plan().peak_bytes();
  };
  const int64_t peak = peak_of(0);
  const std::string error = error_of([&] { peak_of(1); });
  const size_t end = error.find(" at the least, with recomputation; memory_budget is 1");
  ASSERT_NE(end, error.npos) << error;
  const int64_t least = std::stoll(error.substr(error.rfind(' ', end - 1) + 1));
  EXPECT_LE(least, peak);
  for (int k = 0; k <= 3; ++k) EXPECT_LE(peak_of(least + (peak - least) * k / 3), least + (peak - least) * k / 3);
  EXPECT_EQ(report.find("memory_budget"), report.npos) << report;  // the peak itself needs nothing
  if (least < peak) {
    peak_of(least);
    EXPECT_NE(report.find(str_cat("memory_budget ", least, ": ")), report.npos) << report;
  }
  if (!runs) return;
  o.memory_budget = least;
  const Trained got = train(gpt::family(), "gpt_tiny", 8, changes, o);
  EXPECT_EQ(got.stats.planned_peak_bytes, got.stats.measured_peak_bytes);
  expect_same(got, train(gpt::family(), "gpt_tiny", 8, changes, {}));
}

TEST(PipelineStep, KeepsAMemoryBudget) {
  for (const std::string& schedule : pipeline::schedule_names())
    for (int ranks : {2, 4}) expect_budgets(schedule, ranks, schedule == "gpipe" || (schedule == "zb_v" && ranks == 4));
}

TEST(PipelineStep, RecomputesWithoutABudget) {
  const auto peak = [] {
    CompileOptions o{.mesh = Mesh{{"pp", 2}}};
    o.plan.pipeline = "gpipe";
    return train(gpt::family(), "gpt_tiny", 4, {{"layers", "4"}}, o).stats.planned_peak_bytes;
  };
  const int64_t usual = peak();
  set_switch("WEFT_DISABLE", "recompute");
  EXPECT_GT(peak(), usual * 11 / 10);
  set_switch("WEFT_DISABLE", "");
}

// A rank sends the squares of all its gradients, which the update of other ranks reads, in one message.
TEST(PipelineStep, ScalarsOfTheUpdateGoTogether) {
  const TrainerStep s = trainer_step(gpt::family(), "gpt_tiny", 4, {{"layers", "8"}});
  auto step = dist::compile(
      [&](Tensor x, Tensor y) {
        return s.fn(std::vector<Tensor>{x, y});
      },
      {.mesh = Mesh{{"pp", 2}}});
  step.prepare(s.args[0], s.args[1]);
  const PlanReport plan = step.plan();
  for (int rank : {0, 1}) {
    int scalars = 0, activations = 0;
    int64_t most = 0;
    for (const PlannedCollective& c : plan.collectives(rank)) {
      if (c.subject == Subject::kScalar) {
        ++scalars;
        most = std::max(most, c.bytes);
        EXPECT_EQ(c.why, "the update of another rank reads it");
      } else {
        ++activations;
        EXPECT_EQ(c.subject, Subject::kActivation);
        EXPECT_EQ(c.phase, (c.kind == Collective::kSend) == (rank == 0) ? Phase::kForward : Phase::kBackward);
      }
    }
    EXPECT_EQ(activations, 8) << "rank " << rank;
    EXPECT_LE(scalars, 8) << "rank " << rank;
    EXPECT_GE(most, 4 * 25) << "rank " << rank;  // four layers have 25 each
  }
}

// Microbatches with different numbers of targets, even none, weigh as in the whole batch.
TEST(PipelineStep, IgnoredTargetsWeighAsInTheBatch) {
  constexpr int64_t kRows = 8, kTime = 16;
  const auto run = [&](int64_t microbatches, const CompileOptions& options) {
    manual_seed(2);
    gpt::Model model({.vocab = 48, .context = kTime, .layers = 4, .heads = 2, .dim = 32, .ffn = 64});
    model.to(kFloat64);
    optim::SGD opt(model.parameters(), {.lr = 1});
    const Tensor tokens = randint(0, 48, {kRows, kTime}), row = arange(kRows).unsqueeze(1);
    // All targets of rows 2 and 3 are ignored, and half of row 5's.
    Tensor targets = where(logical_or(row == 2, row == 3), -100, randint(0, 48, {kRows, kTime}));
    targets = where(logical_and(row == 5, arange(kTime) < kTime / 2), -100, targets);
    auto step = dist::compile(
        [&](Tensor x, Tensor y) {
          const nn::BatchShare share = nn::BatchShare::of(microbatches, y);
          auto [loss, g] = accumulate(microbatches, std::pair{x, y}, [&](Tensor in, Tensor want) {
            const Tensor loss = model.loss(in, want, share).loss;
            Gradients g = grad(loss, opt.parameters());
            return std::pair{loss.detach(), std::move(g)};
          });
          opt.step(g);
          return loss;
        },
        options);
    std::vector<Tensor> all{step(tokens, targets)};
    for (const Parameter& p : model.parameters()) all.push_back(p.value());
    return all;
  };
  const std::vector<Tensor> whole = run(1, {}), parts = run(4, {}), pipeline = run(4, {.mesh = Mesh{{"pp", 2}}});
  for (size_t i = 0; i < whole.size(); ++i) {
    EXPECT_LE((parts[i] - whole[i]).abs().amax().item<double>(), 1e-12) << i;
    EXPECT_TRUE(same_bits(pipeline[i], parts[i])) << i;
  }
}

}  // namespace
}  // namespace weft::dist
