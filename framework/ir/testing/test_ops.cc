#include "framework/ir/testing/test_ops.h"

#include <cmath>
#include <limits>

namespace weft::testing {
namespace {

Types same(const InferCall& c) {
  for (const TensorType& t : c.in) WEFT_CHECK(t == c.in[0], c.op.name, ": operand types differ: ", c.in[0], " and ", t);
  return {c.in[0]};
}
Types twice(const InferCall& c) { return {c.in[0], c.in[0]}; }
Types scalar(const InferCall& c) {
  WEFT_CHECK(!c.in.empty(), c.op.name, ": no operands; need one");
  return {TensorType{c.in[0].dtype, c.in[0].device, {}}};
}
Types filled(const InferCall& c) {
  c.attrs.f("value");
  return {TensorType{kFloat32, Device::cpu(), c.attrs.ints("shape")}};
}
Types nothing(const InferCall&) { return {}; }
Types of_body(const InferCall& c) {
  const Graph& g = *c.attrs.get<Ref<Graph>>("body");
  WEFT_CHECK(g.inputs.size() == c.in.size(), "call: body takes ", g.inputs.size(), " operands; got ", c.in.size());
  Types t;
  for (Value v : g.outputs) t.push_back(g.type(v));
  return t;
}

}  // namespace

const OpDef add_op = {.name = "add", .traits = kPointwise | kCommutative, .num_inputs = 2, .infer = same, .scalar = 0};
const OpDef neg_op = {.name = "neg", .traits = kPointwise, .infer = same, .scalar = 0};
const OpDef fill_op = {.name = "fill", .num_inputs = 0, .infer = filled};
const OpDef split_op = {.name = "split", .num_outputs = 2, .infer = twice};
const OpDef sum_op = {.name = "sum", .traits = kReduction, .infer = scalar};
const OpDef print_op = {
    .name = "debug_print", .traits = kSideEffect, .num_inputs = -1, .num_outputs = 0, .infer = nothing};
const OpDef call_op = {.name = "call", .traits = kStructural, .num_inputs = -1, .num_outputs = -1, .infer = of_body};
const OpDef history_op = {.name = "grad", .traits = kStructural | kReadsTape, .num_inputs = -1, .infer = scalar};

const OpTable& test_ops() {
  static const OpDef* const all[] = {&add_op, &neg_op, &fill_op, &split_op, &sum_op, &print_op, &call_op, &history_op};
  static const OpTable table(all);
  return table;
}

namespace {

class Generator {
 public:
  Generator(std::mt19937& random, int nodes, int depth) : random_(random), nodes_(nodes), depth_(depth) {}

  Ref<Graph> run() {
    g_->stage = pick<const char*>({"captured", "joint", "fused"});
    for (int i = below(4); i > 0; --i) g_->add_input(type());
    if (depth_ == 0)
      for (int i = below(3); i > 0; --i) g_->add_cell(cell());
    for (int i = below(3); i > 0; --i) g_->add_captured(captured());
    while (g_->size() < nodes_ || g_->size() == 0) step();
    for (size_t c = 0; c < g_->cells.size(); ++c)
      for (int32_t id = 0; id < g_->size(); ++id)
        if (g_->node(id).outputs.size() == 1 && g_->node(id).outputs[0] == g_->cells[c]->type && below(2)) {
          g_->writes.push_back({static_cast<int32_t>(c), {id, 0}});
          break;
        }
    for (int i = below(3); i > 0; --i) g_->outputs.push_back(any());
    return g_;
  }

 private:
  int below(int n) { return static_cast<int>(random_() % static_cast<unsigned>(n)); }
  template <class T>
  T pick(std::initializer_list<T> v) {
    return v.begin()[below(static_cast<int>(v.size()))];
  }

  TensorType type() {
    TensorType t{static_cast<DType>(below(kNumDTypes)), Device::cpu(), {}};
    for (int i = below(3); i > 0; --i) t.shape.push_back(below(4));
    if (below(8) == 0) t.device = pick({Device::meta(), Device::cuda(1), Device::cpu(2)});
    return t;
  }

  std::string text() {
    return pick<const char*>(
        {"w", "blocks.0/attn", "", "a \"quoted\\ one", "new\nline\ttab", "\x01\x7f", "naïve", "x:3", "# no"});
  }

  Ref<Cell> cell() {
    auto c = make_ref<Cell>();
    c->name = text();
    c->type = type();
    c->is_parameter = below(2);
    c->requires_grad = below(2);
    return c;
  }

  double number() {
    return pick({0.0, -0.0, 1.0, 0.1, 1e300, -5e-324, 3.0000000000000004, 1e22, static_cast<double>(INFINITY),
                 -static_cast<double>(INFINITY), std::nan(""), -std::nan(""), std::nan("5"), 123456789.0});
  }

  Tensor captured() {
    TensorType t = type();
    t.device = Device::cpu();
    Tensor x = Tensor::empty(t);
    char* p = static_cast<char*>(x.view_for_kernel().data);
    for (int64_t i = 0; i < t.nbytes(); ++i) p[i] = static_cast<char>(t.dtype == kBool ? below(2) : below(256));
    return x;
  }

  AttrValue attribute() {
    switch (below(6)) {
      case 0:
        return pick<int64_t>({0, -7, std::numeric_limits<int64_t>::max(), std::numeric_limits<int64_t>::min()});
      case 1:
        return number();
      case 2:
        return below(2) == 1;
      case 3:
        return static_cast<DType>(below(kNumDTypes));
      case 4:
        return text();
      default: {
        Shape s;
        for (int i = below(4); i > 0; --i) s.push_back(below(9) - 4);
        return s;
      }
    }
  }

  Value any() {
    while (true) {
      int32_t id = below(g_->size());
      int n = static_cast<int>(g_->node(id).outputs.size());
      if (n > 0) return {id, below(n)};
      add(fill_op, {}, {{"shape", Shape{2}}, {"value", 1.0}});
    }
  }

  void add(const OpDef& op, std::initializer_list<Value> in, Attrs attrs) {
    Node n;
    n.op = &op;
    std::vector<TensorType> types;
    for (Value v : in) {
      n.inputs.push_back(v);
      types.push_back(g_->type(v));
    }
    if (below(5) == 0) attrs = attrs.with("extra", attribute()).with("odd name", attribute());
    n.attrs = attrs;
    n.outputs = op.infer({op, n.attrs, types});
    if (below(3)) n.line = {pick<const char*>({"model.cc", "a b.cc", "x:y"}), static_cast<uint32_t>(1 + below(500))};
    if (below(2)) n.scope = intern(text());
    n.no_grad = below(6) == 0;
    n.backward = below(3) == 0;
    n.recomputed = n.backward && below(3) == 0;
    g_->add(std::move(n));
  }

  void step() {
    if (g_->size() == 0 || below(8) == 0) return add(fill_op, {}, {{"shape", Shape{2}}, {"value", number()}});
    Value v = any();
    switch (below(8)) {
      case 0:
      case 1:
        return add(add_op, {v, v}, {});
      case 2:
        return add(split_op, {v}, {});
      case 3:
        return add(sum_op, {v}, {});
      case 4:
        return add(print_op, {v}, {{"name", text()}});
      case 5: {
        if (depth_ == 2) return;
        Ref<Graph> body = Generator(random_, 3, depth_ + 1).run();
        if (body->inputs.size() == 1) add(call_op, {v}, {{"body", body}});
        if (body->inputs.size() == 2) add(call_op, {v, any()}, {{"body", body}, {"last", number()}});
        return;
      }
      case 6:
        g_->add_input(type());
        return;  // arguments need not come first
      default:
        return add(neg_op, {v}, {});
    }
  }

  std::mt19937& random_;
  int nodes_, depth_;
  Ref<Graph> g_ = make_ref<Graph>();
};

}  // namespace

Ref<Graph> random_graph(std::mt19937& random, int nodes, int depth) { return Generator(random, nodes, depth).run(); }

}  // namespace weft::testing
