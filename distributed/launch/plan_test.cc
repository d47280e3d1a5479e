// Compares plans with runs: plans predict every collective, rules forbid some, and the bytes agree with published
// formulas.
#include <gtest/gtest.h>

#include "distributed/launch/compile.h"
#include "distributed/launch/testing/gpt_training.h"
#include "distributed/launch/world.h"
#include "distributed/plan/collective_names.h"
#include "distributed/plan/forbid.h"
#include "distributed/plan/plan_text.h"
#include "framework/base/testing/error_of.h"

namespace weft::dist {
namespace {

using testing::error_of;
using testing::GptTraining;
using testing::small_gpt;

Tensor tokens_of(const gpt::Config& c) { return randint(0, c.vocab, {4, 16}, {.dtype = kInt32}); }

PlanReport plan_gpt(const std::string& mesh, const CompileOptions& more = {}, const gpt::Config& config = small_gpt()) {
  manual_seed(7);
  GptTraining t(config);
  CompileOptions o = more;
  o.mesh = Mesh::parse(mesh);
  const Tensor x = tokens_of(config);
  return plan([&](Tensor a, Tensor b) { return t(a, b); }, o, x, x);
}

// The values of a step on meta have no memory; the plan equals the CPU's plan.
TEST(Plan, OnMetaIsThatOnTheCpu) {
  for (const char* mesh : {"dp2", "fsdp2", "tp2", "cp2", "dp2,tp2", "fsdp2,cp2"}) {
    SCOPED_TRACE(mesh);
    GptTraining t(small_gpt(), kFloat32, Device::meta());
    auto train = [&](Tensor tokens, Tensor targets) { return t(tokens, targets); };
    const Tensor x = Tensor::empty({kInt32, Device::meta(), {4, 16}});
    EXPECT_EQ(dist::plan(train, {.mesh = Mesh::parse(mesh)}, x, x).hash(), plan_gpt(mesh).hash());
    auto step = dist::compile(train, {.mesh = Mesh::parse(mesh)});
    EXPECT_EQ(step(x, x)[0].device(), Device::meta());
    EXPECT_GT(step.stats().planned_peak_bytes, 0);
    EXPECT_THROW(step.world(), Error);
  }
}

std::string text_of(const PlannedCollective& c) {
  return str_cat(c.kind, " ", c.axes, " ", c.dtype, " ", c.bytes, " bytes, site ", c.site);
}
std::string text_of(const CollectiveRecord& c) { return str_cat(c.to_string(), ", site ", c.site); }

void expect_as_planned(const std::string& mesh, const Plan& plan, int64_t vocab) {
  SCOPED_TRACE(mesh);
  manual_seed(7);
  const gpt::Config config = small_gpt(vocab);
  GptTraining t(config);
  auto step = compile([&](Tensor a, Tensor b) { return t(a, b); }, {.mesh = Mesh::parse(mesh), .plan = plan});
  const Tensor x = tokens_of(config), y = tokens_of(config);
  step.prepare(x, y);
  const PlanReport p = step.plan();
  step(x, y);  // the first run compares kernels with their ops, in the memory of rank 0's device
  step.world().clear_statistics();
  step.world().record(true);
  step(x, y);
  step.world().record(false);
  for (int r = 0; r < step.world().size(); ++r) {
    const auto& got = step.world().rank(r).records();
    const auto& want = p.collectives(r);
    ASSERT_EQ(got.size(), want.size()) << "rank " << r;
    for (size_t i = 0; i < got.size(); ++i)
      ASSERT_EQ(text_of(got[i]), text_of(want[i])) << "rank " << r << ", collective " << i << " " << want[i].why;
  }
  EXPECT_FALSE(p.collectives().empty());
  // The peak memory of the largest rank is as planned.
  const CompileStats stats = step.stats();
  EXPECT_EQ(stats.measured_peak_bytes, stats.planned_peak_bytes);
  if (std::string_view(mesh).find("fsdp4") == mesh.npos || vocab % 4 == 0) {
    EXPECT_EQ(p.peak_bytes(), stats.planned_peak_bytes);
  }
}

TEST(Plan, RanksDoWhatItSays) {
  for (const char* mesh : {"dp2", "fsdp2", "tp2", "fsdp2,tp2", "cp2", "dp2,cp2,tp2"}) expect_as_planned(mesh, {}, 48);
  Plan zero1, zero2, whole;
  zero1.zero = 1;
  zero2.zero = 2;
  whole.sequence = false;
  whole.keep_gathered = true;
  expect_as_planned("dp4", zero1, 48);
  expect_as_planned("dp2,tp2", zero2, 48);
  expect_as_planned("fsdp2,tp2", whole, 48);
  expect_as_planned("fsdp4", {}, 50);  // uneven shards
}

TEST(Plan, TellsEverything) {
  const PlanReport p = plan_gpt("fsdp2,tp2");
  EXPECT_EQ(p.mesh().to_string(), "fsdp2,tp2");
  EXPECT_EQ(p.parameters().size(), 28u);
  EXPECT_GT(p.peak_bytes(), 0);
  EXPECT_FALSE(p.peak_is_exact());
  EXPECT_GT(p.estimate().step_seconds(), 0);
  for (const PlannedCollective& c : p.collectives()) {
    EXPECT_FALSE(c.what.empty() || c.why.empty()) << text_of(c);
    EXPECT_GT(c.site, 0);
  }
  const std::string text = p.to_string();
  EXPECT_NE(text.find("blocks.*.attn.qkv.weight"), text.npos) << text;
  // The text has the same number of lines for any number of layers.
  gpt::Config deep = small_gpt();
  deep.layers = 12;
  const std::string more = plan_gpt("fsdp2,tp2", {}, deep).to_string();
  auto lines = [](const std::string& s) { return std::count(s.begin(), s.end(), '\n'); };
  EXPECT_EQ(lines(more), lines(text)) << more;
  EXPECT_LE(lines(more), 60) << more;
  EXPECT_NE(plan_gpt("fsdp2,tp2").hash(), plan_gpt("fsdp4").hash());
  EXPECT_EQ(plan_gpt("fsdp2,tp2").hash(), p.hash());
}

TEST(Plan, OfOneRank) {
  manual_seed(7);
  GptTraining t(small_gpt());
  auto step = compile([&](Tensor a, Tensor b) { return t(a, b); }, {});
  step.prepare(tokens_of(small_gpt()), tokens_of(small_gpt()));
  EXPECT_TRUE(step.plan().collectives().empty());
  EXPECT_TRUE(step.plan().peak_is_exact());
}

std::string forbidden(const std::string& mesh, const std::string& rule) {
  return error_of([&] { plan_gpt(mesh, {.forbid = {rule}}); });
}

TEST(Forbid, NamesTheCollectiveAndWhy) {
  EXPECT_EQ(forbidden("fsdp2,tp2", "alltoall@*"), "");
  EXPECT_EQ(forbidden("dp2", "allgather@dp:activations"), "");
  EXPECT_EQ(forbidden("dp2", "allgather@tp"), "");
  const std::string gather = forbidden("fsdp2", "allgather@fsdp:parameters");
  for (const char* part : {"forbid: 'allgather@fsdp:parameters' forbids the all-gather of", "over fsdp",
                           "it is there because", "zero 2 or less"})
    EXPECT_NE(gather.find(part), gather.npos) << part << ": " << gather;
  const std::string tp = forbidden("tp2", "reduce-scatter@tp:blocks.*");
  for (const char* part : {"blocks.0", "made at models/gpt/model.cc:", "sequence = false"})
    EXPECT_NE(tp.find(part), tp.npos) << part << ": " << tp;
  EXPECT_NE(forbidden("dp2", "allreduce@*:gradients"), "");
  EXPECT_NE(forbidden("dp2", "*@dp"), "");
}

TEST(Forbid, BadRulesAreOneSentence) {
  EXPECT_EQ(forbidden("dp2", "allgather"),
            "forbid: got 'allgather'; need KIND@DIMENSION or KIND@DIMENSION:WHAT, as in \"allgather@dp:activations\"");
  EXPECT_EQ(forbidden("dp2", "gather@dp"),
            "forbid: 'gather@dp' names the collective 'gather'; need allreduce, allgather, reducescatter, alltoall, "
            "permute, broadcast, send, recv, or *");
  EXPECT_EQ(forbidden("dp2", "allgather@xy"), "forbid: 'allgather@xy' names the mesh dimension 'xy'; need dp, or *");
  EXPECT_EQ(forbidden("dp2", "allgather@dp:"),
            "forbid: 'allgather@dp:' says nothing after ':'; need parameters, gradients, activations, scalars or a "
            "pattern of names");
  EXPECT_NE(forbidden("dp2", std::string(100000, '@')), "");
}

TEST(Forbid, Patterns) {
  EXPECT_TRUE(name_matches("blocks.*", "blocks.0.attn"));
  EXPECT_TRUE(name_matches("*.qkv.*", "blocks.0.attn.qkv.weight"));
  EXPECT_FALSE(name_matches("*.qkv", "blocks.0.attn.qkv.weight"));
  EXPECT_TRUE(name_matches("*", ""));
  EXPECT_FALSE(name_matches("", "a"));
  // Patterns with many stars do not need exponential time.
  EXPECT_FALSE(name_matches(std::string(2000, '*') + "b", std::string(2000, 'a')));
}

TEST(Automatic, TakesTheFastestThatFits) {
  const PlanReport p = plan_gpt("dp2,tp2", {.plan = Plan::automatic()});
  ASSERT_FALSE(p.rejected.empty());
  for (const RejectedCandidate& r : p.rejected) {
    EXPECT_FALSE(r.reason.empty()) << r.text;
    EXPECT_GE(r.step_seconds, p.estimate().step_seconds()) << r.text;
  }
  EXPECT_NE(p.to_string().find("rejected plans"), std::string::npos);
  int64_t least = p.peak_bytes();
  for (const RejectedCandidate& r : p.rejected) least = std::min(least, r.peak_bytes);
  if (least < p.peak_bytes()) {
    const PlanReport small = plan_gpt("dp2,tp2", {.plan = Plan::automatic(), .memory_budget = least});
    EXPECT_EQ(small.peak_bytes(), least);
  }
  EXPECT_THROW(plan_gpt("dp2,tp2", {.plan = Plan::automatic(), .memory_budget = 1000}), Error);
}

TEST(Automatic, IsNotSearchedAgainIfNothingFits) {
  for (const bool any_mesh : {false, true}) {
    auto step = compile([](Tensor x) { return sum(x * x); }, {.mesh = Mesh::parse(any_mesh ? "" : "dp2"),
                                                              .plan = any_mesh ? Plan::automatic(2) : Plan::automatic(),
                                                              .memory_budget = 1});
    const std::string first = error_of([&] { step(ones({4, 4})); });
    EXPECT_NE(first.find(" ranks fits 1 bytes; the smallest needs about "), std::string::npos) << first;
    EXPECT_EQ(error_of([&] { step(ones({4, 4})); }), first);
    EXPECT_EQ(step.stats().captures, 1);
  }
}

TEST(Automatic, ChoosesTheMesh) {
  const PlanReport p = plan_gpt("", {.plan = Plan::automatic(4)});
  EXPECT_EQ(p.mesh().size(), 4);
  EXPECT_GE(p.rejected.size(), 10u);
  // If there are fewer rows than ranks, sequences may also be split, in each of the three ways.
  const PlanReport more = plan_gpt("", {.plan = Plan::automatic(8)});
  std::string tried = more.mesh().to_string();
  for (const RejectedCandidate& r : more.rejected) tried += "\n" + r.text;
  EXPECT_NE(tried.find("cp2"), std::string::npos) << tried;
}

TEST(Automatic, LooksAtWaysToSplitASequence) {
  const PlanReport p = plan_gpt("cp2", {.plan = Plan::automatic()});
  std::string tried;
  for (const RejectedCandidate& r : p.rejected) tried += r.text + "\n";
  EXPECT_EQ(p.rejected.size(), 2u) << tried;
}

TEST(Automatic, Trains) {
  manual_seed(7);
  const gpt::Config config = small_gpt();
  GptTraining t(config);
  auto step = compile([&](Tensor a, Tensor b) { return t(a, b); }, {.plan = Plan::automatic(2)});
  const std::vector<Tensor> out = step(tokens_of(config), tokens_of(config));
  EXPECT_GT(out[0].item<float>(), 0);
  EXPECT_EQ(step.plan().mesh().size(), 2);
}

TEST(PlanText, IsReadBack) {
  Plan given{{"blocks.*.attn.qkv.weight", {{"tp", Shard(0)}}}, {"tok.weight", {{"tp", Replicate()}}}};
  given.zero = 2;
  given.keep_gathered = true;
  given.expert_room = 2.5;
  const PlanReport before = plan_gpt("dp2,tp2", {.plan = given});
  const std::string path = ::testing::TempDir() + "/a.plan";
  save_plan(before, path);
  const SavedPlan saved = load_plan(path);
  EXPECT_EQ(saved.mesh.to_string(), "dp2,tp2");
  EXPECT_EQ(saved.hash, before.hash());
  EXPECT_EQ(saved.plan.expert_room, 2.5);
  const PlanReport after = plan_gpt(saved.mesh.to_string(), {.plan = saved.plan});
  EXPECT_EQ(after.hash(), saved.hash) << plan_text(before) << plan_text(after);
  EXPECT_EQ(plan_text(after), plan_text(before));
}

TEST(PlanText, HostileTextIsAnError) {
  const std::string good = plan_text(plan_gpt("dp2,tp2"));
  auto error = [](const std::string& text) { return error_of([&] { parse_plan(text); }); };
  EXPECT_EQ(error(good), "");
  EXPECT_EQ(error(""), "plan: the text is empty; need 'weft plan 1' and the lines of a plan");
  EXPECT_EQ(error("weft plan 1\nmesh dp2\nzero 4"), "plan, line 3: zero is '4'; need a stage from 0 to 3");
  EXPECT_EQ(error("weft plan 1\nmesh dp2\nsplit w tp 0\nend"),
            "plan: 'w' is placed along 'tp', but mesh dp2 has no dimension 'tp'");
  EXPECT_NE(error("weft plan 1\nmesh dp2\nexpert_room -1\nend"), "");
  EXPECT_NE(error("weft plan 1\nmesh dp99999999999"), "");
  EXPECT_NE(error("weft plan 1\nsplit a dp 99999999999999999999"), "");
  EXPECT_EQ(error(good + "zero 1\n"), str_cat("plan, line ", std::count(good.begin(), good.end(), '\n') + 1,
                                              ": got 'zero 1' after the line 'end'; need no more lines"));
}

TEST(PlanText, CutTextIsAnError) {
  const std::string good = plan_text(plan_gpt("dp2,tp2"));
  for (size_t n = 0; n + 2 < good.size(); ++n)
    EXPECT_NE(error_of([&] { parse_plan(good.substr(0, n)); }), "") << good.substr(0, n);
  EXPECT_EQ(
      error_of([&] { parse_plan(good.substr(0, good.rfind("end"))); }),
      "plan: no line 'end': the file is incomplete, or a version of Weft before 'end' was the last line wrote it; "
      "save the plan again");
}

}  // namespace
}  // namespace weft::dist
