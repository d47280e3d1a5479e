// Tests that Graph::to_proto() writes what graph.proto declares: reads it with protobuf's own reader, rebuilds and
// compares.
#include <gtest/gtest.h>

#include "framework/ir/graph.pb.h"
#include "framework/ir/rewrite.h"
#include "framework/ir/testing/test_ops.h"

namespace weft {
namespace {

Value value(const ValueProto& p) { return {p.node(), p.index()}; }

TensorType type(const TypeProto& p) {
  TensorType t{parse_dtype(p.dtype()), Device::cpu(), Shape(std::vector<int64_t>(p.shape().begin(), p.shape().end()))};
  std::string_view d = p.device();
  if (d == "meta")
    t.device = Device::meta();
  else if (d == "cuda:1")
    t.device = Device::cuda(1);
  else if (d == "cpu:2")
    t.device = Device::cpu(2);
  else
    EXPECT_EQ(d, "cpu");
  return t;
}

Ref<Graph> rebuild(const GraphProto& p) {
  auto g = make_ref<Graph>();
  g->stage = p.stage();
  for (const CellProto& c : p.cells()) {
    auto cell = make_ref<Cell>();
    cell->name = c.name();
    cell->type = type(c.type());
    cell->is_parameter = c.is_parameter();
    cell->requires_grad = c.requires_grad();
    g->cells.push_back(cell);
  }
  for (const CapturedProto& c : p.captured()) {
    Tensor t = Tensor::empty(type(c.type()));
    EXPECT_EQ(static_cast<int64_t>(c.data().size()), t.type().nbytes());
    if (!c.data().empty()) std::memcpy(t.view_for_kernel().data, c.data().data(), c.data().size());
    g->captured.push_back(t);
  }
  for (const NodeProto& n : p.nodes()) {
    Node node;
    node.op = testing::test_ops().find(n.op());
    for (const ValueProto& v : n.inputs()) node.inputs.push_back(value(v));
    std::vector<Attrs::Entry> attrs;
    for (const AttrProto& a : n.attrs()) {
      switch (a.value_case()) {
        case AttrProto::kI:
          attrs.emplace_back(a.name(), a.i());
          break;
        case AttrProto::kF:
          attrs.emplace_back(a.name(), a.f());
          break;
        case AttrProto::kB:
          attrs.emplace_back(a.name(), a.b());
          break;
        case AttrProto::kDtype:
          attrs.emplace_back(a.name(), parse_dtype(a.dtype()));
          break;
        case AttrProto::kS:
          attrs.emplace_back(a.name(), a.s());
          break;
        case AttrProto::kInts:
          attrs.emplace_back(a.name(), Shape(std::vector<int64_t>(a.ints().values().begin(), a.ints().values().end())));
          break;
        case AttrProto::kGraph:
          attrs.emplace_back(a.name(), rebuild(a.graph()));
          break;
        case AttrProto::VALUE_NOT_SET:
          ADD_FAILURE() << "attribute without a value: " << a.name();
      }
    }
    node.attrs = Attrs(attrs);
    for (const TypeProto& t : n.outputs()) node.outputs.push_back(type(t));
    node.line = {intern(n.file()), n.line()};
    node.scope = intern(n.scope());
    node.no_grad = n.no_grad();
    node.backward = n.backward();
    node.recomputed = n.recomputed();
    g->add(node);
  }
  for (const ValueProto& v : p.inputs()) g->inputs.push_back(value(v));
  for (const WriteProto& w : p.writes()) g->writes.push_back({w.cell(), value(w.value())});
  for (const ValueProto& v : p.outputs()) g->outputs.push_back(value(v));
  return g;
}

TEST(GraphProto, CarriesTheWholeGraph) {
  std::mt19937 random(5);
  for (int i = 0; i < 200; ++i) {
    Ref<Graph> g = testing::random_graph(random, i % 20);
    GraphProto p;
    ASSERT_TRUE(p.ParseFromString(g->to_proto()));
    EXPECT_EQ(rebuild(p)->to_string(), g->to_string());  // text shows labels and lines too
  }
}

}  // namespace
}  // namespace weft
