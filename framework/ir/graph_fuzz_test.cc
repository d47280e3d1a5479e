// Damaged texts and messages of graphs: each is refused, or read as a graph that prints, reads back as the same graph
// and can be verified.
#include <gtest/gtest.h>

#include "framework/ir/rewrite.h"
#include "framework/ir/testing/test_ops.h"
#include "framework/testing/fuzz.h"

namespace weft {
namespace {

TEST(GraphFuzz, DamagedText) {
  const std::vector<std::string_view> words = {"graph",
                                               "%0",
                                               "%1",
                                               "{",
                                               "}",
                                               "(",
                                               ")",
                                               "[",
                                               "]",
                                               "f32",
                                               "cell c0",
                                               "cell",
                                               "bool",
                                               "write",
                                               "captured",
                                               "captured t0",
                                               "write c0, %1",
                                               "return",
                                               "nan",
                                               "-",
                                               "\"",
                                               "\\x00",
                                               "#",
                                               ":",
                                               "=",
                                               ",",
                                               "@cuda:3",
                                               "@meta",
                                               "no_grad",
                                               "hash",
                                               "add",
                                               "split",
                                               "call",
                                               "body=graph",
                                               "body=null",
                                               "undefined",
                                               "parameter frozen",
                                               "f8e4m3[]",
                                               "nan(0x7ff8000000000001)",
                                               "i64[0, 4611686018427387904, 8]"};
  std::mt19937 random(11);
  std::vector<std::string> seeds;
  for (int i = 0; i < 64; ++i) seeds.push_back(testing::random_graph(random, i % 16)->to_string());
  seeds.push_back("graph joint (%0: f32[2]) {\n  %1 = neg %0 {a1=1, a2=2.0, a3=[1, 2]} : f32[2]\n  return %1\n}\n");
  testing::fuzz({.seeds = std::move(seeds),
                 .damage = [&](std::string& s, testing::FuzzRandom& r) { testing::damage_text(s, r, words); },
                 .read =
                     [](const std::string& text) {
                       const Ref<Graph> g = parse_graph(text, testing::test_ops());
                       // Large captured tensors take time to print, not to read.
                       for (const Tensor& t : g->captured)
                         if (t.defined() && t.type().nbytes() > 1 << 16) return;
                       const std::string again = g->to_string();
                       const Ref<Graph> back = parse_graph(again, testing::test_ops());
                       // In nested graphs, a captured tensor that the text does not contain is equal only to itself.
                       EXPECT_TRUE(structurally_equal(*g, *back) || back->to_string() == again) << again;
                       try {
                         verify(*g);
                       } catch (const Error&) {  // the parser checks the text, verify() the rules of graphs
                       }
                     },
                 .names = "parse_graph: line "});
}

TEST(GraphFuzz, DamagedBytes) {
  std::mt19937 random(13);
  std::vector<std::string> seeds;
  for (int i = 0; i < 64; ++i) seeds.push_back(testing::random_graph(random, i % 16)->to_proto());
  testing::fuzz({.seeds = std::move(seeds),
                 .damage = testing::damage_bytes,
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
