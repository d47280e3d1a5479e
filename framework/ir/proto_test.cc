// Graphs as messages: the round trip as a property of random graphs, messages of the reader, damaged and cut bytes.
#include <gtest/gtest.h>

#include "framework/base/testing/error_of.h"
#include "framework/ir/graph.pb.h"
#include "framework/ir/rewrite.h"
#include "framework/ir/testing/test_ops.h"

namespace weft {
namespace {

using testing::test_ops;

Ref<Graph> read(std::string_view bytes) { return parse_graph_proto(bytes, test_ops()); }

TEST(GraphProto, RandomGraphsRoundTrip) {
  std::mt19937 random(5);
  for (int i = 0; i < 200; ++i) {
    const Ref<Graph> g = testing::random_graph(random, i % 20);
    const std::string bytes = g->to_proto();
    const Ref<Graph> back = read(bytes);
    ASSERT_EQ(back->to_string(), g->to_string());  // text shows labels and lines too
    ASSERT_TRUE(structurally_equal(*g, *back));
    ASSERT_EQ(back->to_proto(), bytes);
  }
}

TEST(GraphProto, CapturedTensorsHaveTheirElementsUpTo16) {
  Graph g;
  const std::vector<float> few(16, 2.5f), many(17, 2.5f);
  g.outputs = {g.add_captured(Tensor::from_vector(few, {2, 8})), g.add_captured(Tensor::from_vector(many, {17}))};
  const Ref<Graph> back = read(g.to_proto());
  EXPECT_EQ(back->captured[0].to_vector<float>(), few);
  EXPECT_EQ(back->captured[1].to_vector<float>(), std::vector<float>(17, 0.f));
}

// A graph that adds an argument to a cell and calls a nested graph with the sum.
GraphProto example() {
  const Ref<Graph> g = parse_graph(R"(graph captured (%0: f32[2]) {
  cell c0 "w" parameter f32[2]
  captured t0 bool[2] = [true, false]
  %1 = cell c0 : f32[2]
  %2 = add %0, %1 : f32[2]                                  # model.cc:41 mlp
  %3 = call %2 {body=graph captured (%0: f32[2]) {
    %1 = neg %0 : f32[2]
    return %1
  }} : f32[2]
  write c0, %3
  return %2
}
)",
                                   test_ops());
  GraphProto p;
  EXPECT_TRUE(p.ParseFromString(g->to_proto()));
  return p;
}

GraphProto& body(GraphProto& p) { return *p.mutable_nodes(3)->mutable_attrs(0)->mutable_graph(); }

TEST(GraphProto, ErrorsNamePlaceGotAndNeed) {
  EXPECT_EQ(read(example().SerializeAsString())->size(), 4);
  using Change = void (*)(GraphProto&);
  const std::pair<Change, const char*> cases[] = {
      {[](GraphProto& p) { p.set_stage("later"); },
       "parse_graph_proto: graph: stage: got 'later'; need captured, joint, partitioned, fused or scheduled"},
      {[](GraphProto& p) { p.mutable_nodes(2)->set_op("nig"); },
       "parse_graph_proto: node %2: got unknown op \"nig\"; need one of the 11 ops of the table"},
      {[](GraphProto& p) { p.mutable_nodes(2)->clear_op(); }, "node %2: got unknown op \"\"; need one of the 11 ops"},
      {[](GraphProto& p) { p.mutable_nodes(2)->mutable_inputs(1)->set_node(2); },
       "parse_graph_proto: node %2: add: got operand %2.0; need a result of an earlier node"},
      {[](GraphProto& p) { p.mutable_nodes(2)->mutable_inputs(1)->set_node(-2147483647 - 1); },
       "got operand %-2147483648.0; need a result of an earlier node"},
      {[](GraphProto& p) { p.mutable_nodes(2)->mutable_inputs(1)->set_index(1); }, "got operand %1.1; need a result"},
      {[](GraphProto& p) { p.mutable_nodes(2)->add_inputs(); }, "node %2: add: got add with 3 operands; need 2"},
      {[](GraphProto& p) { p.mutable_nodes(2)->clear_outputs(); }, "node %2: add: got add with 0 results; need 1"},
      {[](GraphProto& p) { p.mutable_nodes(2)->mutable_outputs(0)->set_dtype("f33"); },
       "node %2: add: got \"f33\"; need a dtype: f32 f64"},
      {[](GraphProto& p) { p.mutable_nodes(2)->mutable_outputs(0)->set_device("tpu"); },
       "got \"tpu\"; need a device: cpu, cuda, meta or other"},
      {[](GraphProto& p) { p.mutable_nodes(2)->mutable_outputs(0)->set_device("cuda:40000"); },
       "got \"cuda:40000\"; need the index of a device: 0 to 32767"},
      {[](GraphProto& p) { p.mutable_nodes(2)->mutable_outputs(0)->set_dtype("i64"); },
       "parse_graph_proto: node %2 (add, model.cc:41): types: got i64[2]; need f32[2]"},
      {[](GraphProto& p) { p.mutable_nodes(2)->mutable_outputs(0)->set_shape(0, -1); },
       "got f32[-1]; need type: negative extent"},
      {[](GraphProto& p) {
         for (int i = 0; i < 3; ++i) p.mutable_nodes(2)->mutable_outputs(0)->add_shape(int64_t{1} << 40);
       },
       "has too many elements"},
      {[](GraphProto& p) {
         for (int i = 0; i < 8; ++i) p.mutable_nodes(2)->mutable_outputs(0)->add_shape(1);
       },
       "node %2: add: got 9 integers; need at most 8"},
      {[](GraphProto& p) { p.mutable_nodes(1)->clear_attrs(); },
       "node %1 (cell): index: got no integer attribute index; need one"},
      {[](GraphProto& p) { p.mutable_nodes(1)->mutable_attrs(0)->set_i(7); }, "(cell): index: got 7; need 0 to 0"},
      {[](GraphProto& p) { *p.mutable_nodes(1)->add_attrs() = p.nodes(1).attrs(0); },
       "node %1: cell: got attribute index twice; need distinct names"},
      {[](GraphProto& p) { p.mutable_nodes(3)->clear_attrs(); }, "attrs: no attribute 'body'; got []"},
      {[](GraphProto& p) { p.mutable_nodes(3)->mutable_attrs(0)->clear_value(); }, "'body' is null; need a graph"},
      {[](GraphProto& p) { body(p).mutable_nodes(1)->mutable_inputs(0)->set_node(9); },
       "parse_graph_proto: node %3: call: \"body\": node %1: neg: got operand %9.0; need a result of an earlier node"},
      {[](GraphProto& p) { body(p).mutable_outputs(0)->set_node(9); },
       "node %3 (call) body: graph: outputs: got output 0 = %9.0; need a value of this graph"},
      {[](GraphProto& p) { p.clear_inputs(); }, "node %0 (input): index: got 0; need 0 to -1"},
      {[](GraphProto& p) { p.mutable_writes(0)->set_cell(1); }, "graph: writes: got cell c1; need 1 cells"},
      {[](GraphProto& p) { p.mutable_writes(0)->mutable_value()->set_index(-1); }, "got %3.-1 for c0; need a value"},
      {[](GraphProto& p) { p.mutable_cells(0)->clear_type(); }, "cell c0: got \"\"; need a dtype"},
      {[](GraphProto& p) { p.mutable_captured(0)->set_data("\1"); },
       "captured t0: got 1 bytes of data; need 2 for bool[2]"},
      {[](GraphProto& p) { p.mutable_captured(0)->set_data("\1\2"); }, "captured t0: got a bool of 2; need 0 or 1"},
      {[](GraphProto& p) { p.mutable_captured(0)->mutable_type()->set_shape(0, 17); },
       "captured t0: got elements of bool[17]; need at most 16 elements on cpu"},
      {[](GraphProto& p) {
         p.mutable_captured(0)->clear_data();
         p.mutable_captured(0)->mutable_type()->set_shape(0, int64_t{1} << 40);
       },
       "captured t0: got a captured tensor of 1099511627776 bytes; need at most 1073741824 bytes of them in all"},
      {[](GraphProto& p) { p.mutable_captured(0)->clear_type(); }, "graph: captured: got undefined t0; need a tensor"},
  };
  for (const auto& [change, message] : cases) {
    GraphProto p = example();
    change(p);
    const std::string error = testing::error_of([&] { read(p.SerializeAsString()); });
    EXPECT_NE(error.find(message), std::string::npos) << message << "\n" << error;
    EXPECT_EQ(error.find("parse_graph_proto: "), 0u) << error;
  }
}

TEST(GraphProto, OtherBytesAndDeepNestingAreErrors) {
  EXPECT_EQ(testing::error_of([] { read("graph captured () {\n  return\n}\n"); }),
            "parse_graph_proto: got 31 bytes that are no complete message GraphProto; need all bytes that "
            "to_proto() returned");
  auto nested = [](int levels) {
    GraphProto p = example();
    for (int i = 2; i < levels; ++i) {
      GraphProto outer = example();
      body(outer).Swap(&p);
      p.Swap(&outer);
    }
    return testing::error_of([&] { read(p.SerializeAsString()); });
  };
  const auto refuses = [](const std::string& error) { return error.find("nested more deeply") != error.npos; };
  EXPECT_FALSE(refuses(nested(32))) << nested(32);
  EXPECT_NE(nested(33).find("got graphs nested more deeply; need at most 32 levels"), std::string::npos) << nested(33);
  EXPECT_NE(nested(1000).find("bytes that are no complete message GraphProto"), std::string::npos) << nested(1000);
}

TEST(GraphProto, CutBytesAreAnError) {
  const std::string bytes = example().SerializeAsString();
  for (size_t n = 0; n < bytes.size(); ++n) {
    const std::string error = testing::error_of([&] { read(bytes.substr(0, n)); });
    EXPECT_EQ(error.find("parse_graph_proto: got "), 0u) << n << ": " << error;
  }
}

}  // namespace
}  // namespace weft
