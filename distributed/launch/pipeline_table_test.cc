// User-defined tables: a table with an error is refused with a message that names the error; every other table gives
// the bits of one device.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "distributed/collectives.h"
#include "distributed/launch/compile.h"
#include "distributed/pipeline/communication.h"
#include "distributed/pipeline/schedules.h"
#include "distributed/pipeline/table_text.h"
#include "distributed/pipeline/testing/mutations.h"
#include "distributed/pipeline/testing/reference.h"
#include "framework/base/testing/error_of.h"
#include "framework/testing/compare.h"
#include "weft.h"

namespace weft::dist {
namespace {

using pipeline::ActionCosts;
using pipeline::StageLinks;
using pipeline::Table;
using pipeline::testing::below;
using pipeline::testing::mutate;
using pipeline::testing::Mutation;
using pipeline::testing::Random;
using weft::testing::error_of;
using weft::testing::same_bits;

constexpr int64_t kWidth = 8;

// A chain of layers, one for each stage.
struct Chain {
  explicit Chain(int layers, std::vector<int> marked = {}) : marks(std::move(marked)) {
    manual_seed(3);
    for (int i = 0; i < layers; ++i) weights.emplace_back(randn({kWidth, kWidth}) * 0.5, str_cat("layers.", i));
    opt.emplace(weights, optim::SGDOptions{.lr = 0.1});
  }

  std::vector<Tensor> operator()(int64_t microbatches, const Tensor& x, const Tensor& y) {
    auto [loss, g] = accumulate(microbatches, std::pair{x, y}, [&](Tensor in, Tensor want) {
      for (size_t i = 0; i < weights.size(); ++i) {
        NameScope scope(str_cat("layers.", i).c_str());
        in = tanh(matmul(in, weights[i].value()));
        if (std::ranges::count(marks, static_cast<int>(i))) in = stage_boundary(in);
      }
      const Tensor loss = mse_loss(in, want);
      Gradients g = grad(loss, weights);
      return std::pair{loss.detach(), std::move(g)};
    });
    opt->step(g);
    return {loss};
  }

  std::vector<int> marks;  // layers after which a stage begins
  std::vector<Parameter> weights;
  std::optional<optim::SGD> opt;
};

// The loss and the new weights.
std::vector<Tensor> run(int layers, int microbatches, const CompileOptions& options, std::vector<int> marks = {}) {
  Chain chain(layers, std::move(marks));
  auto step = dist::compile([&](Tensor x, Tensor y) { return chain(microbatches, x, y); }, options);
  std::vector<Tensor> all = step(randn({2 * microbatches, kWidth}), randn({2 * microbatches, kWidth}));
  for (const Parameter& p : chain.weights) all.push_back(p.value());
  return all;
}

struct File {
  explicit File(const std::string& name) : path(std::filesystem::path(::testing::TempDir()) / name) {}
  ~File() { std::filesystem::remove(path); }
  const std::string path;
};

// Each seed is one change of one table.
class PipelineTable : public ::testing::TestWithParam<int> {};

TEST_P(PipelineTable, RefusedOrTheSameBits) {
  const File file(str_cat("table", GetParam(), ".csv"));
  std::map<std::pair<int, int>, std::vector<Tensor>> one_device;
  int refused = 0, same = 0;
  for (uint64_t seed = static_cast<uint64_t>(GetParam()) * 250; seed < static_cast<uint64_t>(GetParam() + 1) * 250;
       ++seed) {
    Random random(seed);
    const std::string name = pipeline::schedule_names()[seed % 7];
    const int ranks = 2 + below(random, 3), microbatches = 8 + below(random, 2);
    Table table = pipeline::make_schedule(name, {.ranks = ranks, .microbatches = microbatches});
    const int stages = table.stages();
    if (seed % 3 == 0) table = pipeline::add_communication(table, StageLinks(stages), ActionCosts::equal(stages));
    const Mutation m = mutate(std::move(table), random);
    SCOPED_TRACE(str_cat("seed ", seed, ": ", name, " on ", ranks, " ranks, ", m.what));
    std::ofstream(file.path) << pipeline::table_text(m.table);
    CompileOptions o{.mesh = Mesh{{"pp", ranks}}};
    o.plan.pipeline = file.path;
    std::vector<Tensor> got;
    const std::string error = error_of([&] { got = run(stages, microbatches, o); });
    if (!error.empty()) {
      ++refused;
      bool named = error.find("deadlock") != error.npos;
      // In a file, a stage is on the rank of its first line: if this line was moved, all other lines are wrong.
      named |= m.what.starts_with("moved") && error.starts_with("pipeline table: rank ");
      for (const pipeline::Action& a : m.touched) {
        named |= error.find(a.to_string()) != error.npos;
        if (pipeline::transfers(a.kind)) named |= error.find(pipeline::testing::other_end(a).to_string()) != error.npos;
      }
      EXPECT_TRUE(named) << error;
      continue;
    }
    ++same;
    std::vector<Tensor>& want = one_device[{stages, microbatches}];
    if (want.empty()) want = run(stages, microbatches, {});
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < got.size(); ++i) ASSERT_TRUE(same_bits(got[i], want[i])) << "value " << i;
  }
  EXPECT_GT(refused, 100);
  EXPECT_GT(same, 5);
}
INSTANTIATE_TEST_SUITE_P(Changes, PipelineTable, ::testing::Range(0, 8));

TEST(PipelineErrors, EachIsOneSentence) {
  const auto error = [&](const std::string& schedule, const std::string& stages = "auto", int ranks = 2,
                         int microbatches = 4) {
    CompileOptions o{.mesh = Mesh{{"pp", ranks}}};
    o.plan.pipeline = schedule;
    o.plan.stages = stages;
    return error_of([&] { run(4, microbatches, o); });
  };
  EXPECT_EQ(error("zb"),
            "pipeline: no schedule has the name 'zb'; need one of gpipe, 1f1b, interleaved_1f1b, zb_h1, zb_2p, zb_v, "
            "dualpipe_v");
  EXPECT_EQ(error("interleaved_1f1b:x"),
            "pipeline: got 'interleaved_1f1b:x'; need the stages of a rank after the colon, as "
            "'interleaved_1f1b:4'");
  EXPECT_EQ(error("1f1b", "auto", 64),
            "pp: the step has 12 pieces of work for a microbatch; need one or more for each "
            "of 64 stages");
  EXPECT_EQ(error("1f1b", "layers.9"),
            "stages: 'layers.9' is no module that computes a value of each microbatch; need one, as 'blocks.3'");
  EXPECT_EQ(error("/no/table.csv"), "cannot read '/no/table.csv': No such file or directory");
  const File file("wrong.csv");
  std::ofstream(file.path) << pipeline::table_text(pipeline::make_schedule("1f1b", {.ranks = 2, .microbatches = 8}));
  EXPECT_EQ(error(file.path), str_cat("pipeline: ", file.path, " is for 8 microbatches; the step has 4"));
  EXPECT_EQ(error(file.path, "auto", 4, 8),
            str_cat("pipeline: ", file.path, " is for 2 ranks; need a table for the ranks of the mesh, pp4"));
  EXPECT_EQ(error_of([&] {
              run(4, 1, {.mesh = Mesh{{"pp", 2}}});
            }),
            "pp: the step has no accumulate() of 2 parts or more with detached results; need accumulate(microbatches, "
            "batch, fn) with grad() and detach() inside fn");
  EXPECT_EQ(error_of([&] {
              run(4, 4, {.mesh = Mesh{{"pp", 2}}, .memory_budget = 1000});
            }).substr(0, 22),
            "compile: a rank needs ");
}

// All stages read the result of the first layer and its weight: values skip stages, two stages of a rank receive one
// value, and a parameter is on several ranks.
TEST(PipelineLinks, SkipConnectionsAndSharedWeights) {
  const auto train = [](const CompileOptions& o) {
    manual_seed(5);
    std::vector<Parameter> weights;
    for (int i = 0; i < 8; ++i) weights.emplace_back(randn({kWidth, kWidth}) * 0.5, str_cat("layers.", i));
    const Buffer unused(full({3}, 2.0), "unused");
    optim::AdamW opt(weights, {.lr = 0.1});
    auto step = dist::compile(
        [&](Tensor x, Tensor y) {
          const Tensor dropped = unused.value() * 2.0;  // nothing reads it
          auto [loss, g] = accumulate(8, std::pair{x, y}, [&](Tensor in, Tensor want) {
            const Tensor first = tanh(matmul(in, weights[0].value()));
            Tensor out = first;
            for (size_t i = 1; i < weights.size(); ++i)
              out = tanh(matmul(out, weights[i].value()) + first + matmul(out, weights[0].value()));
            const Tensor loss = mse_loss(out, want);
            Gradients g = grad(loss, weights);
            return std::pair{loss.detach(), std::move(g)};
          });
          auto [clipped, norm] = optim::clip_grad_norm(g, 0.01);
          opt.step(clipped);
          return std::vector<Tensor>{loss, norm};
        },
        o);
    const Tensor x = randn({16, kWidth}), y = randn({16, kWidth});
    std::vector<Tensor> all;
    for (int i = 0; i < 3; ++i) all = step(x, y);
    for (const Parameter& p : weights) all.push_back(p.value());
    for (const auto& [name, cell] : opt.named_cells()) all.push_back(cell.value());
    all.push_back(unused.value());
    return all;
  };
  const std::vector<Tensor> want = train({});
  for (int ranks : {2, 4})
    for (const std::string& schedule : pipeline::schedule_names()) {
      SCOPED_TRACE(str_cat(schedule, " on ", ranks, " ranks"));
      CompileOptions o{.mesh = Mesh{{"pp", ranks}}};
      o.plan.pipeline = schedule;
      const std::vector<Tensor> got = train(o);
      ASSERT_EQ(got.size(), want.size());
      for (size_t i = 0; i < want.size(); ++i) EXPECT_TRUE(same_bits(got[i], want[i])) << "value " << i;
    }
}

// A cell's new value follows from another cell that the step writes, and from no gradient; some ranks write nothing.
TEST(PipelineUpdate, CellsThatFollowFromCells) {
  const auto train = [](const CompileOptions& o) {
    Chain chain(6);
    const Buffer rate(full({}, 1.0), "rate"), count(full({}, int64_t{0}, {.dtype = kInt64}), "count");
    const std::vector<Parameter> last{chain.weights.back()};
    auto step = dist::compile(
        [&](Tensor x, Tensor y) {
          auto [loss, g] = accumulate(4, std::pair{x, y}, [&](Tensor in, Tensor want) {
            for (const Parameter& w : chain.weights) in = tanh(matmul(in, w.value()));
            const Tensor loss = mse_loss(in, want);
            Gradients g = grad(loss, last);
            return std::pair{loss.detach(), std::move(g)};
          });
          auto [clipped, norm] = optim::clip_grad_norm(g, 0.01);
          commit_if(isfinite(norm));
          last[0].set(last[0].value() - clipped[0] * rate.value());
          rate.set(1.0 / (1.0 + count.value().to(kFloat32)));
          count.set(count.value() + 1);
          return loss;
        },
        o);
    const Tensor x = randn({8, kWidth}), y = randn({8, kWidth});
    std::vector<Tensor> all;
    for (int i = 0; i < 4; ++i) all.push_back(step(x, y));
    all.insert(all.end(), {last[0].value(), rate.value(), count.value()});
    return all;
  };
  const std::vector<Tensor> want = train({});
  for (int ranks : {2, 3}) {
    const std::vector<Tensor> got = train({.mesh = Mesh{{"pp", ranks}}});
    for (size_t i = 0; i < want.size(); ++i) EXPECT_TRUE(same_bits(got[i], want[i])) << ranks << " ranks, value " << i;
  }
}

// The batch follows from tensors that the function captures.
TEST(PipelineBatch, CapturedTensors) {
  const auto train = [](const CompileOptions& o) {
    Chain chain(4);
    const Tensor mean = randn({kWidth}), other = randn({16, kWidth}), table = randn({kWidth, kWidth});
    auto step = dist::compile([&](Tensor x, Tensor y) { return chain(4, matmul(x - mean, table), y + other); }, o);
    std::vector<Tensor> all = step(randn({16, kWidth}), randn({16, kWidth}));
    for (const Parameter& p : chain.weights) all.push_back(p.value());
    return all;
  };
  const std::vector<Tensor> want = train({}), got = train({.mesh = Mesh{{"pp", 2}}});
  for (size_t i = 0; i < want.size(); ++i) EXPECT_TRUE(same_bits(got[i], want[i])) << i;
}

// According to its own model, the chosen schedule is the fastest schedule that fits.
TEST(PipelineChoice, IsNeverWorseThanInterleaved) {
  const auto choose = [](int64_t budget) {
    Chain chain(16);
    const Tensor x = randn({16 * 64, kWidth});
    return dist::plan([&](Tensor in, Tensor y) { return chain(16, in, y); },
                      {.mesh = Mesh{{"pp", 4}}, .plan = Plan::automatic(), .memory_budget = budget}, x, x);
  };
  const PlanReport free = choose(0);
  std::map<std::string, RejectedCandidate> rejected;
  for (const RejectedCandidate& r : free.rejected) rejected[r.text] = r;
  int64_t least = free.estimate().peak_bytes;
  int compared = 0;
  for (const auto& [text, r] : rejected) {
    if (r.step_seconds <= 0) continue;
    ++compared;
    EXPECT_LE(free.estimate().step_seconds(), r.step_seconds) << text;
    least = std::min(least, r.peak_bytes);
  }
  EXPECT_GE(compared, 6);
  const auto is_interleaved = [](const auto& r) {
    return r.first.find("pipeline interleaved_1f1b") != std::string::npos;
  };
  EXPECT_TRUE(std::ranges::any_of(rejected, is_interleaved) || free.plan().pipeline == "interleaved_1f1b");
  // For less memory, the choice is a schedule that fits, or an error.
  EXPECT_LE(choose(least).estimate().peak_bytes, least);
  EXPECT_NE(error_of([&] { choose(1000); }).find("fits 1000 bytes"), std::string::npos);
}

TEST(PipelineMarks, StagesBeginBehindThem) {
  const auto first_of_stage_1 = [](std::vector<int> marks) {
    Chain chain(4, std::move(marks));
    const Tensor x = randn({8, kWidth});
    const std::string plan =
        dist::plan([&](Tensor in, Tensor y) { return chain(4, in, y); }, {.mesh = Mesh{{"pp", 2}}}, x, x).to_string();
    const size_t at = plan.find("stage 1 on rank 1: from ");
    return plan.substr(at + 24, plan.find(';', at) - at - 24);
  };
  EXPECT_EQ(first_of_stage_1({}).substr(0, 8), "layers.2");
  EXPECT_EQ(first_of_stage_1({0}).substr(0, 8), "layers.1");
  EXPECT_EQ(first_of_stage_1({2}).substr(0, 8), "layers.3");
  EXPECT_EQ(
      error_of([&] {
        first_of_stage_1({0, 1});
      }),
      "pp: the step has 2 calls of stage_boundary() for 2 stages; need one for each stage but the first, or none");
  const std::vector<Tensor> want = run(4, 4, {}), got = run(4, 4, {.mesh = Mesh{{"pp", 2}}}, {0});
  for (size_t i = 0; i < want.size(); ++i) EXPECT_TRUE(same_bits(got[i], want[i])) << i;
  const std::vector<Tensor> marked = run(4, 4, {}, {0});
  for (size_t i = 0; i < want.size(); ++i) EXPECT_TRUE(same_bits(marked[i], want[i])) << i;
}

// The second rank fails in its first F. No cell has changed, and the next step is right.
TEST(PipelineErrors, AFailedStepChangesNothing) {
  const auto train = [](const CompileOptions& o, bool fails) {
    manual_seed(5);
    Parameter table(randn({4, kWidth}), "table"), weight(randn({kWidth, kWidth}), "weight");
    optim::SGD opt({table, weight}, {.lr = 0.1});
    auto step = dist::compile(
        [&](Tensor x, Tensor ids) {
          auto [loss, g] = accumulate(4, std::pair{x, ids}, [&](Tensor in, Tensor rows) {
            const Tensor out = tanh(matmul(in, weight.value()));
            const Tensor loss = mse_loss(out, index_select(table.value(), 0, rows));
            Gradients g = grad(loss, std::vector<Parameter>{table, weight});
            return std::pair{loss.detach(), std::move(g)};
          });
          opt.step(g);
          return loss;
        },
        o);
    const Tensor x = randn({8, kWidth}), ids = arange(8) % 4;
    if (fails) {
      const Tensor before = weight.value().clone(), rows = table.value().clone();
      const std::string error = error_of([&] { step(x, ids + 2); });
      EXPECT_NE(error.find("rank "), error.npos) << error;
      EXPECT_NE(error.find("index_select"), error.npos) << error;
      EXPECT_TRUE(same_bits(weight.value(), before));
      EXPECT_TRUE(same_bits(table.value(), rows));
    }
    return std::vector<Tensor>{step(x, ids), weight.value(), table.value()};
  };
  const std::vector<Tensor> want = train({}, false), got = train({.mesh = Mesh{{"pp", 2}}}, true);
  for (size_t i = 0; i < want.size(); ++i) EXPECT_TRUE(same_bits(got[i], want[i])) << i;
}

}  // namespace
}  // namespace weft::dist
