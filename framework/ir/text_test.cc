// Graph text: exact examples, the round trip as a property of random graphs, messages of the parser.
#include <gtest/gtest.h>

#include <cmath>

#include "framework/base/testing/error_of.h"
#include "framework/ir/rewrite.h"
#include "framework/ir/testing/test_ops.h"

namespace weft {
namespace {

using testing::random_graph;
using testing::test_ops;

Ref<Graph> parse(std::string_view text) { return parse_graph(text, test_ops()); }

std::string error_of(std::string_view text) {
  return testing::error_of([&] { parse(text); });
}

constexpr const char* kExample = R"(graph captured (%0: f32[2, 3], %1: i64[]@cuda:0) {
  cell c0 "blocks.0.qkv.weight" parameter f32[2, 3]
  cell c1 "step" buffer i64[]
  cell c2 "fixed" parameter frozen bf16[4]
  captured t0 f32[4] = [1.0, -0.0, inf, 0.1]
  captured t1 bool[2] = [true, false]
  %2 = cell c0 : f32[2, 3]
  %3 = captured t0 : f32[4]
  %4 = add %0, %2 : f32[2, 3]                               # model.cc:41 blocks.0/attn
  %5 = neg %4 {alpha=0.1, dtype=bf16, "odd key"=-nan, on=true} no_grad : f32[2, 3] # model.cc:42
  %6.0, %6.1 = split %5 : f32[2, 3], f32[2, 3]              # blocks.0/mlp
  debug_print %6.0 {name="a \"b\"\n"}
  %8 = call %6.1 {body=graph captured (%0: f32[2, 3]) {
    %1 = neg %0 : f32[2, 3]                                 # body.cc:3
    return %1
  }, dims=[0, -1], inner=3} : f32[2, 3]                     # model.cc:50
  write c0, %8
  return %6.0, %1
}
)";

TEST(GraphText, ExampleReadsAndPrintsTheSame) {
  Ref<Graph> g = parse(kExample);
  EXPECT_EQ(g->to_string(), kExample);
  verify(*g);
  EXPECT_EQ(g->size(), 9);
  EXPECT_EQ(g->inputs.size(), 2u);
  EXPECT_EQ(g->type(g->inputs[1]).device, Device::cuda(0));
  EXPECT_TRUE(g->cells[0]->is_parameter && g->cells[0]->requires_grad && !g->cells[2]->requires_grad);
  EXPECT_EQ(g->node(4).line.to_string(), "model.cc:41");
  EXPECT_STREQ(g->node(4).scope, "blocks.0/attn");
  EXPECT_STREQ(g->node(6).scope, "blocks.0/mlp");
  EXPECT_TRUE(g->node(5).no_grad);
  EXPECT_TRUE(std::isnan(g->node(5).attrs.f("odd key")) && std::signbit(g->node(5).attrs.f("odd key")));
  EXPECT_EQ(g->node(7).attrs.get<std::string>("name"), "a \"b\"\n");
  EXPECT_EQ(g->captured[0].to_vector<float>(), (std::vector<float>{1, -0.f, INFINITY, 0.1f}));
}

TEST(GraphText, RandomGraphsRoundTrip) {
  std::mt19937 random(7);
  for (int i = 0; i < 400; ++i) {
    Ref<Graph> g = random_graph(random, i % 25);
    std::string text = g->to_string();
    SCOPED_TRACE(text);
    Ref<Graph> back = parse(text);
    ASSERT_EQ(back->to_string(), text);
    ASSERT_TRUE(structurally_equal(*g, *back));
    ASSERT_EQ(structural_hash(*g), structural_hash(*back));
    verify(*back);
    for (int32_t id = 0; id < g->size(); ++id) {
      ASSERT_EQ(g->node(id).line.to_string(), back->node(id).line.to_string());
      ASSERT_STREQ(g->node(id).scope, back->node(id).scope);
    }
  }
}

TEST(GraphText, HandWrittenTextMayOmitTypesAndNameValues) {
  Ref<Graph> g = parse(R"(
    # comments and names of one's own
    graph joint (%x: f32[2], %y: f32[2]) {
      cell c0 "n" buffer f32[2]
      %c = cell c0
      %s = add %x, %y   # just words
      %a, %b = split %s
      return %b, %c
    })");
  verify(*g);
  EXPECT_EQ(g->to_string(), R"(graph joint (%0: f32[2], %1: f32[2]) {
  cell c0 "n" buffer f32[2]
  %2 = cell c0 : f32[2]
  %3 = add %0, %1 : f32[2]
  %4.0, %4.1 = split %3 : f32[2], f32[2]
  return %4.1, %2
}
)");
}

TEST(GraphText, LargeCapturedTensorsShowTheirHashAndReadAsZeros) {
  Graph g;
  std::vector<float> v(17, 2.5f);
  g.outputs = {g.add_captured(Tensor::from_vector(v, {17}))};
  std::string text = g.to_string();
  EXPECT_NE(text.find("captured t0 f32[17] hash 0x"), std::string::npos) << text;
  Ref<Graph> back = parse(text);
  EXPECT_TRUE(structurally_equal(g, *back));
  EXPECT_EQ(back->captured[0].to_vector<float>(), std::vector<float>(17, 0.f));
  v[16] = 3;
  Graph other;
  other.outputs = {other.add_captured(Tensor::from_vector(v, {17}))};
  EXPECT_NE(other.to_string(), text);
}

TEST(GraphText, ErrorsNameLineGotAndNeed) {
  auto body = [](const char* line) { return str_cat("graph captured (%0: f32[2]) {\n  ", line, "\n  return %0\n}\n"); };
  const std::pair<std::string, const char*> cases[] = {
      {"", "line 1: got the end of the text; need 'graph'"},
      {"graph captured (%0: f33[2]) {}", "line 1: got \"f33\"; need a dtype: f32 f64"},
      {"graph captured (%0: f32[2], %0: f32[2]) { return }",
       "line 1: got %0 defined again; need each value defined once"},
      {body("%1 = nig %0 : f32[2]"), "line 2: got unknown op \"nig\"; need one of the 11 ops of the table"},
      {body("%1 = neg %7 : f32[2]"), "line 2: got %7; need a value defined above"},
      {body("%1 = add %0 : f32[2]"), "got add with 1 operands; need 2"},
      {body("%1, %2 = neg %0 : f32[2]"), "got 2 names for 1 results; need one name for each"},
      {body("%1 = neg %0 {a=} : f32[2]"), "line 2: got \"}\"; need an attribute's value"},
      {body("%1 = call %0 {body=null}"), "line 2: attrs: 'body' is null; need a graph"},
      {body("captured t0 f32[200000000]\n  captured t1 f32[200000000]"),
       "line 3: got a captured tensor of 800000000 bytes; need at most 1073741824 bytes of them in all"},
      {body("%1 = neg %0 {a=1, a=2} : f32[2]"), "line 2: got attribute a twice; need distinct names"},
      {body("%1 = neg %0 {a=99999999999999999999} : f32[2]"),
       "line 2: got \"99999999999999999999\"; need an integer of 64 bits"},
      {body("%1 = neg %0 {a=\"x} : f32[2]"), "need '\"' to close the string"},
      {body("%1 = cell c4 : f32[2]"), "line 2: got \"4\"; need the index of one of the 0 cells"},
      {body("cell c1 \"w\" parameter f32[2]"), "line 2: got another name; need c0"},
      {body("captured t0 f32[2] = [1.0]"), "line 2: got \"]\"; need ','"},
      {body("captured t0 f32[2]@cuda:77"), "line 2: captured tensor f32[2]@cuda:77: allocate: device cuda:77"},
      {body("captured t0 i32[1] = [3000000000]"), "line 2: got another number; need an integer that fits i32"},
      {body("captured t0 f32[9999999999]"), "got a captured tensor of 39999999996 bytes; need at most"},
      {body("%1 = neg %0 : f32[-2]"), "negative extent"},
      {body("%1 = neg %0 : f32[1, 1, 1, 1, 1, 1, 1, 1, 1]"), "need ']': at most 8 entries"},
      {"graph captured () {\n return\n} x", "line 3: got \"x\"; need the end of the text"},
  };
  for (const auto& [text, message] : cases)
    EXPECT_NE(error_of(text).find(message), std::string::npos) << text << "\n" << error_of(text);
  std::string deep;
  for (int i = 0; i < 1000; ++i) deep += "graph captured (%0: f32[]) { %1 = neg %0 {body=";
  EXPECT_NE(error_of(deep).find("need at most 32 levels"), std::string::npos) << error_of(deep);
}

}  // namespace
}  // namespace weft
