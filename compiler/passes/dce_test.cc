#include "compiler/passes/dce.h"

#include <gtest/gtest.h>

#include "framework/ir/rewrite.h"
#include "framework/ir/testing/test_ops.h"

namespace weft {
namespace {

Ref<Graph> parse(std::string_view text) { return parse_graph(text, testing::test_ops()); }

TEST(Dce, KeepsEffectsWritesAndArguments) {
  Ref<Graph> now = dce(*parse(R"(graph joint (%0: f32[2], %1: f32[2]) {
    cell c0 "unused" buffer f32[2]
    cell c1 "w" parameter f32[2]
    cell c2 "only written" buffer f32[2]
    captured t0 f32[1] = [1.0]
    captured t1 f32[2] = [1.0, 2.0]
    %2 = cell c0
    %3 = neg %2
    %4 = cell c1
    %5 = captured t1
    %6 = add %4, %5
    %7 = captured t0
    debug_print %6
    %9 = neg %6
    %10.0, %10.1 = split %9
    write c2, %9
    return %6
  })"));
  ASSERT_TRUE(now);
  verify(*now);
  EXPECT_EQ(now->to_string(), R"(graph joint (%0: f32[2], %1: f32[2]) {
  cell c0 "w" parameter f32[2]
  cell c1 "only written" buffer f32[2]
  captured t0 f32[2] = [1.0, 2.0]
  %2 = cell c0 : f32[2]
  %3 = captured t0 : f32[2]
  %4 = add %2, %3 : f32[2]
  debug_print %4
  %6 = neg %4 : f32[2]
  write c1, %6
  return %4
}
)");
  EXPECT_FALSE(dce(*now));
}

TEST(Dce, RandomGraphsKeepTheirInterfaceAndSettleAtOnce) {
  std::mt19937 random(9);
  int shrunk = 0;
  for (int i = 0; i < 200; ++i) {
    Ref<Graph> g = testing::random_graph(random, 30), now = dce(*g);
    if (!now) continue;
    ++shrunk;
    verify(*now);
    EXPECT_LE(now->size(), g->size());
    EXPECT_EQ(now->inputs.size(), g->inputs.size());
    EXPECT_EQ(now->outputs.size(), g->outputs.size());
    EXPECT_EQ(now->writes.size(), g->writes.size());
    EXPECT_FALSE(dce(*now));
  }
  EXPECT_GT(shrunk, 50);
}

}  // namespace
}  // namespace weft
