// Damaged graph messages: each is refused, or read as a graph that is written and read again as the same graph.
#include <gtest/gtest.h>

#include "framework/ir/rewrite.h"
#include "framework/ir/testing/test_ops.h"
#include "framework/testing/fuzz.h"

namespace weft {
namespace {

TEST(GraphProtoFuzz, DamagedBytes) {
  std::mt19937 random(13);
  std::vector<std::string> seeds;
  for (int i = 0; i < 64; ++i) seeds.push_back(testing::random_graph(random, i % 16)->to_proto());
  testing::fuzz({.seeds = std::move(seeds),
                 .damage = [](std::string& s, testing::FuzzRandom& r) { testing::damage_bytes(s, r); },
                 .read =
                     [](const std::string& bytes) {
                       const Ref<Graph> g = parse_graph_proto(bytes, testing::test_ops());
                       const std::string again = g->to_proto();
                       EXPECT_EQ(parse_graph_proto(again, testing::test_ops())->to_proto(), again);
                     },
                 .names = "parse_graph_proto: "});
}

}  // namespace
}  // namespace weft
