// Tests of graphs: interned text, equality, hash, rewriting, op table, costs, Graphviz.
#include "framework/ir/graph.h"

#include <gtest/gtest.h>

#include "framework/ir/rewrite.h"
#include "framework/ir/testing/test_ops.h"

namespace weft {
namespace {

using testing::test_ops;

Ref<Graph> parse(std::string_view text) { return parse_graph(text, test_ops()); }

TEST(Graph, InternedTextIsOnePointer) {
  EXPECT_EQ(intern("blocks.0"), intern(std::string("blocks") + ".0"));
  EXPECT_NE(intern("blocks.0"), intern("blocks.1"));
  EXPECT_STREQ(intern(""), "");
}

TEST(Graph, CellsAndCapturedTensorsAreListedOnce) {
  Graph g;
  auto c = make_ref<Cell>();
  c->type = {kFloat32, Device::cpu(), {2}};
  Tensor t = Tensor::from_vector({1, 2}, {2});
  EXPECT_NE(g.add_cell(c), g.add_cell(c));
  EXPECT_NE(g.add_captured(t), g.add_captured(t));
  EXPECT_EQ(g.cells.size(), 1u);
  EXPECT_EQ(g.captured.size(), 1u);
  EXPECT_EQ(g.find_cell(c.get()), 0);
  EXPECT_EQ(g.find_cell(nullptr), -1);
}

TEST(Graph, EqualityIgnoresLabelsAndSeesStructure) {
  constexpr std::string_view kText = R"(graph joint (%0: f32[2]) {
    cell c0 "w" parameter f32[2]
    captured t0 f32[2] = [1.0, nan]
    %1 = cell c0
    %2 = captured t0
    %3 = add %0, %1 {k=1}
    write c0, %3
    return %3
  })";
  Ref<Graph> g = parse(kText);
  auto changed = [&](std::string_view from, std::string_view to) {
    std::string t(kText);
    t.replace(t.find(from), from.size(), to);
    Ref<Graph> h = parse(t);
    bool equal = structurally_equal(*g, *h);
    EXPECT_EQ(equal, structural_hash(*g) == structural_hash(*h)) << t;
    return !equal;
  };
  EXPECT_FALSE(changed("{k=1}", "{k=1} : f32[2] # a.cc:7 scope"));
  EXPECT_FALSE(changed("\"w\"", "\"v\""));
  EXPECT_TRUE(changed("joint", "fused"));
  EXPECT_TRUE(changed("parameter", "buffer"));
  EXPECT_TRUE(changed("[1.0", "[2.0"));
  EXPECT_TRUE(changed("k=1", "k=2"));
  EXPECT_TRUE(changed("{k=1}", "{k=1} no_grad"));
  EXPECT_TRUE(changed("%0, %1", "%1, %0"));
  EXPECT_TRUE(changed("write c0, %3", "write c0, %1"));
  EXPECT_TRUE(changed("return %3", "return"));
}

TEST(Rewriter, CopiesAllByDefault) {
  std::mt19937 random(3);
  for (int i = 0; i < 50; ++i) {
    Ref<Graph> g = testing::random_graph(random, 20);
    Rewriter r(*g);
    for (int32_t id = 0; id < g->size(); ++id) EXPECT_EQ(r.copy(id), id);
    EXPECT_TRUE(structurally_equal(*r.finish(), *g));
  }
}

TEST(Rewriter, ReplacesValuesAndKeepsInputs) {
  Ref<Graph> g = parse(R"(graph joint (%0: f32[2], %1: f32[2]) {
    %2 = neg %0
    %3 = neg %2
    %4 = add %3, %0
    return %4, %3
  })");
  Rewriter r(*g);
  r.copy(0);
  r.map({3, 0}, r({0, 0}));
  EXPECT_FALSE(r.has({2, 0}));
  EXPECT_THROW(r({2, 0}), Error);
  r.copy(4);
  Ref<Graph> now = r.finish();
  verify(*now);
  EXPECT_EQ(now->to_string(), R"(graph joint (%0: f32[2], %2: f32[2]) {
  %1 = add %0, %0 : f32[2]
  return %1, %0
}
)");
  EXPECT_EQ(users(*g), (std::vector<std::vector<int32_t>>{{2, 4}, {}, {3}, {4}, {}}));
}

TEST(OpTable, StructuralOpsComeFirst) {
  const OpDef impostor{.name = "cell"};
  const OpDef* const own[] = {&impostor};
  OpTable table(own);
  EXPECT_EQ(table.find("cell"), &cell_op);
  EXPECT_EQ(table.find("input"), &input_op);
  EXPECT_EQ(table.find("captured"), &captured_op);
  EXPECT_EQ(table.find("add"), nullptr);
  EXPECT_EQ(test_ops().find("add"), &testing::add_op);
}

TEST(OpCost, DefaultsToPointsAndBytes) {
  TensorType t{kFloat64, Device::cpu(), {3, 5}};
  TensorType in[] = {t, t};
  Cost c = op_cost(testing::add_op, {}, in, std::span(&t, 1));
  EXPECT_EQ(c.flops, 15);
  EXPECT_EQ(c.bytes, 3 * 15 * 8);
  c = op_cost(cell_op, {}, {}, std::span(&t, 1));
  EXPECT_EQ(c.flops + c.bytes, 0);
}

TEST(Graph, DotText) {
  std::string dot = parse(R"(graph joint (%0: f32[2]) {
    cell c0 "blocks.0 \"w\"" parameter f32[2]
    %1 = cell c0
    %2 = add %0, %1 : f32[2]  # model.cc:4 attn
    %3, %4 = split %2
    write c0, %4
    return %3
  })")
                        ->to_dot();
  for (const char* part : {"digraph \"joint\"", "label=\"%1 blocks.0 \\\"w\\\"\\nf32[2]\", shape=cylinder",
                           "subgraph cluster_0 {\n    label=\"attn\"", "%2 add\\nf32[2]\\nmodel.cc:4", "n0 -> n2;",
                           "n3 -> w0;", "n3 -> o0;"})
    EXPECT_NE(dot.find(part), std::string::npos) << part << "\n" << dot;
}

}  // namespace
}  // namespace weft
