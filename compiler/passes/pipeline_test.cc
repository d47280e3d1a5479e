// The whole list: from captured graphs with grad to joint graphs with the same bits.
#include "compiler/passes/pipeline.h"

#include <gtest/gtest.h>

#include <fstream>

#include "compiler/passes/testing/random_ops_graph.h"
#include "framework/dispatch/interpreter.h"
#include "framework/ir/rewrite.h"
#include "ops/all_ops.h"

namespace weft {
namespace {

TEST(Pipeline, EachRowSaysWhyItIsThere) {
  for (const PipelineStage& s : pipeline()) {
    EXPECT_EQ(passes_of(s.stage).data(), s.passes.data());
    for (const Pass& p : s.passes) EXPECT_GT(std::string(p.why_here).size(), 10u) << p.name;
  }
}

TEST(Pipeline, ArchitecturePageHasTheSameRows) {
  std::vector<std::string> want, got;
  for (const PipelineStage& s : pipeline())
    for (const Pass& p : s.passes) want.push_back(p.name);
  std::ifstream page("docs/architecture.md");
  std::string line;
  while (std::getline(page, line) && line != "## The whole pipeline as one list") continue;
  ASSERT_TRUE(page);
  while (std::getline(page, line) && !line.starts_with("## ")) {
    if (!line.starts_with("| ") || line.starts_with("| pass ")) continue;
    got.push_back(line.substr(2, line.find(" |", 2) - 2));
    const size_t at = line.find(" | ") + 3;
    const std::string stage = line.substr(at, line.find(" |", at) - at);
    if (got.size() > want.size() || got.back() != want[got.size() - 1]) continue;
    // The last row of a stage has the graph stage that the list gives for it.
    size_t rows = 0;
    for (const PipelineStage& s : pipeline()) {
      rows += s.passes.size();
      EXPECT_TRUE(rows != got.size() || stage == s.graph) << got.back() << ": " << stage;
    }
  }
  EXPECT_EQ(got, want);
}

TEST(Pipeline, GradBecomesOrdinaryNodesWithTheSameBits) {
  Ref<Graph> g = parse_graph(R"(graph captured (%0: f32[2, 3], %1: f32[3, 2]) {
    %2 = cast %0 {dtype=bf16}
    %3 = cast %2 {dtype=f32}
    %4 = permute %1 {dims=[1, 0]}
    %5 = mul %3, %4
    %6 = tanh %5
    %7 = constant {value=1.0, dtype=f32}
    %8 = mul %6, %7
    %9 = reduce_sum %8 {dims=[0, 1]}
    %10, %11 = grad %9, %0, %1 {seeded=false}
    return %9, %10, %11
  })",
                             op_table());
  std::vector<PassReport> report;
  Ref<Graph> all = run_passes(g, passes_of(PassStage::kJoint), {.report = &report});
  Ref<Graph> plain = run_passes(g, passes_of(PassStage::kJoint), {.disable = {"all"}});
  EXPECT_EQ(all->stage, "joint");
  EXPECT_EQ(plain->stage, "joint");
  EXPECT_LT(all->size(), plain->size());
  EXPECT_EQ(report.size(), passes_of(PassStage::kJoint).size());
  std::mt19937 random(1);
  for (int i = 0; i < 20; ++i) {
    std::vector<Tensor> args = testing::random_arguments(random, *g);
    EXPECT_EQ(testing::difference(*plain, *all, args), "") << all->to_string();
  }
}

TEST(Pipeline, RandomGraphsKeepTheirBits) {
  std::mt19937 random(8);
  for (int i = 0; i < 200; ++i) {
    Ref<Graph> g = testing::random_ops_graph(random, 30);
    g = parse_graph(g->to_string(), op_table());
    g->stage = "captured";
    Ref<Graph> now = run_passes(g, passes_of(PassStage::kJoint));
    std::vector<Tensor> args = testing::random_arguments(random, *g);
    ASSERT_EQ(testing::difference(*g, *now, args), "") << g->to_string() << now->to_string();
  }
}

TEST(Pipeline, ManyLayersAreQuick) {  // a quadratic pass would run into the test's time limit
  std::string text = "graph captured (%0: f32[4, 4]) {\n%v0 = neg %0\n";
  for (int i = 0; i < 4000; ++i)
    text += str_cat("%a", i, " = tanh %v", i, "\n%b", i, " = permute %a", i, " {dims=[1, 0]}\n%c", i, " = permute %b",
                    i, " {dims=[1, 0]}\n%d", i, " = constant {value=1.0, dtype=f32}\n%e", i, " = mul %c", i, ", %d", i,
                    "\n%v", i + 1, " = add %e", i, ", %v", i, "\n");
  text += "%s = reduce_sum %v4000 {dims=[0, 1]}\n%g = grad %s, %0 {seeded=false}\nreturn %g\n}";
  Ref<Graph> now = run_passes(parse_graph(text, op_table()), passes_of(PassStage::kJoint));
  EXPECT_GT(now->size(), 4000);
  EXPECT_LT(now->size(), 40000);
}

}  // namespace
}  // namespace weft
