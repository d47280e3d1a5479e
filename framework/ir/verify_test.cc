// Tests each rule of verify(): a graph that breaks it, and the message.
#include <gtest/gtest.h>

#include "framework/base/testing/error_of.h"
#include "framework/ir/rewrite.h"
#include "framework/ir/testing/test_ops.h"

namespace weft {
namespace {

using namespace testing;

const TensorType kPair{kFloat32, Device::cpu(), {2}};

Node node(const OpDef& op, std::initializer_list<Value> in, TensorType type = kPair, Attrs attrs = {}) {
  Node n;
  n.op = &op;
  n.inputs = in;
  n.attrs = attrs;
  n.outputs = {type};
  n.line = {"model.cc", 12};
  return n;
}

Graph valid() {
  Graph g;
  g.add_input(kPair);
  auto c = make_ref<Cell>();
  c->name = "w";
  c->type = kPair;
  g.add_cell(c);
  g.add_captured(Tensor::from_vector({1, 2}, {2}));
  int32_t id = g.add(node(add_op, {{0, 0}, {1, 0}}));
  g.writes = {{0, {id, 0}}};
  g.outputs = {{id, 0}};
  return g;
}

std::string broken(void (*change)(Graph&)) {
  Graph g = valid();
  verify(g);
  change(g);
  return testing::placed_error_of([&] { verify(g); }, Code::kInternal);
}

TEST(Verify, NamesTheBrokenRule) {
  EXPECT_EQ(broken([](Graph& g) { g.stage = "later"; }),
            "verify: graph: stage: got 'later'; need captured, joint, partitioned, fused or scheduled");
  EXPECT_EQ(broken([](Graph& g) {
              g.add(node(neg_op, {{0, 0}}, {kFloat32, Device::cpu(), {3}}));
            }),
            "verify: node %4 (neg, model.cc:12): types: got f32[3]; need f32[2]");
  EXPECT_EQ(broken([](Graph& g) {
              g.add(node(neg_op, {{0, 0}, {1, 0}}));
            }),
            "verify: node %4 (neg, model.cc:12): arity: got 2 operands; need 1");
  EXPECT_EQ(
      broken([](Graph& g) {
        int32_t i = g.add(node(fill_op, {}, {kFloat32, Device::cpu(), {3}}, {{"shape", Shape{3}}, {"value", 1.0}}));
        g.add(node(add_op, {{0, 0}, {i, 0}}));
      }),
      "verify: node %5 (add, model.cc:12): types: got \"add: operand types differ: f32[2] and f32[3]\"; need operands "
      "that the op accepts");
  EXPECT_EQ(broken([](Graph& g) {
              g.inputs.push_back({0, 0});
            }),
            "verify: graph: inputs: got no node for argument 1; need one input node each");
  EXPECT_EQ(broken([](Graph& g) {
              g.add(node(input_op, {}, kPair, {{"index", int64_t{0}}}));
            }),
            "verify: node %4 (input, model.cc:12): inputs: got argument 0 = %0.0; need %4.0");
  EXPECT_EQ(broken([](Graph& g) {
              g.add(node(cell_op, {}, kPair, {{"index", int64_t{1}}}));
            }),
            "verify: node %4 (cell, model.cc:12): index: got 1; need 0 to 0");
  EXPECT_EQ(broken([](Graph& g) { g.add(node(cell_op, {})); }),
            "verify: node %4 (cell, model.cc:12): index: got no integer attribute index; need one");
  EXPECT_EQ(broken([](Graph& g) { g.cells[0] = make_ref<Cell>(); }),
            "verify: node %1 (cell): types: got f32[2]; need f32[]");
  EXPECT_EQ(broken([](Graph& g) { g.captured[0] = Tensor(); }),
            "verify: graph: captured: got undefined t0; need a tensor");
  EXPECT_EQ(broken([](Graph& g) { g.writes.push_back(g.writes[0]); }),
            "verify: graph: writes: got two writes of c0 \"w\"; need one");
  EXPECT_EQ(broken([](Graph& g) { g.writes[0].cell = 5; }), "verify: graph: writes: got cell c5; need 1 cells");
  EXPECT_EQ(broken([](Graph& g) {
              g.writes[0].value = {9, 0};
            }),
            "verify: graph: writes: got %9.0 for c0; need a value of this graph");
  EXPECT_EQ(broken([](Graph& g) {
              int32_t i = g.add(node(sum_op, {{0, 0}}, {kFloat32, Device::cpu(), {}}));
              g.writes[0].value = {i, 0};
            }),
            "verify: node %4 (sum, model.cc:12): writes: got f32[]; need f32[2]");
  EXPECT_EQ(broken([](Graph& g) {
              g.outputs.push_back({0, 1});
            }),
            "verify: graph: outputs: got output 1 = %0.1; need a value of this graph");
  EXPECT_EQ(broken([](Graph& g) {
              g.add(node(history_op, {{0, 0}}, {kFloat32, Device::cpu(), {}}));
              g.stage = "joint";
            }),
            "verify: node %4 (grad, model.cc:12): stage: got grad in stage joint; need stage captured");
}

TEST(Verify, LooksIntoNestedGraphs) {
  EXPECT_EQ(broken([](Graph& g) {
              auto body = make_ref<Graph>();
              Value x = body->add_input(kPair);
              body->outputs = {{body->add(node(neg_op, {x})), 0}};
              g.add(node(call_op, {{0, 0}}, kPair, {{"body", body}}));
              verify(g);
              auto bad = make_ref<Graph>(*body);
              bad->add(node(add_op, {x}));
              g.add(node(call_op, {{0, 0}}, kPair, {{"body", bad}}));
            }),
            "verify: node %5 (call) body: node %2 (add, model.cc:12): arity: got 1 operands; need 2");
}

TEST(Verify, AddRefusesLaterValues) {
  Graph g = valid();
  EXPECT_THROW(g.add(node(neg_op, {{4, 0}})), Error);
  EXPECT_THROW(g.add(node(neg_op, {{0, 1}})), Error);
  EXPECT_THROW(g.add(node(neg_op, {{-1, 0}})), Error);
}

}  // namespace
}  // namespace weft
