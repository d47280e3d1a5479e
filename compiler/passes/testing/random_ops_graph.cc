#include "compiler/passes/testing/random_ops_graph.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "framework/dispatch/interpreter.h"
#include "framework/ir/op_def.h"
#include "ops/all_ops.h"
#include "ops/core/creation.h"
#include "ops/core/indexing/index.h"
#include "ops/core/indexing/view.h"
#include "ops/core/pointwise.h"

namespace weft::testing {
namespace {

constexpr const char* kOps[] = {
    "add",       "add",       "sub",         "mul",   "mul",    "neg",        "neg",        "abs",      "square",
    "relu",      "maximum",   "minimum",     "where", "where",  "eq",         "ne",         "lt",       "logical_not",
    "exp",       "tanh",      "div",         "cast",  "cast",   "reshape",    "reshape",    "permute",  "permute",
    "broadcast", "broadcast", "slice",       "slice", "pad",    "reduce_sum", "reduce_max", "constant", "constant",
    "bit_and",   "bit_or",    "logical_and", "floor", "concat", "isfinite",   "gather",     "gather",   "index_select"};

class Generator {
 public:
  Generator(std::mt19937& random, int nodes) : random_(random), nodes_(nodes) {}

  Ref<Graph> run() {
    constexpr DType kDtypes[] = {kFloat32, kFloat32, kFloat32, kBFloat16, kFloat16, kFloat64,
                                 kInt32,   kInt64,   kInt16,   kInt8,     kUInt8,   kBool};
    base_ = kDtypes[below(std::size(kDtypes))];
    for (int i = 0; i < 3; ++i) g_->add_input({base_, Device::cpu(), i == 2 ? Shape{} : Shape{2, 3}});
    g_->add_input({kBool, Device::cpu(), {2, 3}});
    for (int tries = 0; g_->size() < nodes_ && tries < nodes_ * 50; ++tries) step();
    for (int i = 0; i < 3; ++i) g_->outputs.push_back({g_->size() - 1 - below(4), 0});
    g_->stage = "joint";
    return g_;
  }

 private:
  int below(size_t n) { return static_cast<int>(random_() % n); }
  Value any() { return {below(4) ? std::max(0, g_->size() - 1 - below(8)) : below(g_->size()), 0}; }

  Attrs attributes(std::string_view op, const Shape& in) {
    if (op == "cast") {
      constexpr DType kTo[] = {kFloat32, kFloat64, kBFloat16, kFloat16, kBool};
      return {{"dtype", kTo[below(std::size(kTo))]}};
    }
    if (op == "reshape") {
      Shape s = in;
      if (below(3) == 0) return {{"shape", s}};
      if (s.size() > 1 && below(2))
        s = Shape{in.numel()};
      else if (in.numel() == 6)
        s = below(2) ? Shape{3, 2} : Shape{2, 3};
      if (s.size() < 4 && below(3) == 0) s.insert(below(s.size() + 1), 1);
      return {{"shape", s}};
    }
    if (op == "permute") {
      Shape dims;
      for (int i = 0; i < in.size(); ++i) dims.push_back(i);
      for (int i = 0; i + 1 < in.size(); ++i)
        if (below(2)) std::swap(dims[i], dims[i + 1]);
      return {{"dims", dims}};
    }
    if (op == "broadcast") {
      Shape s = in;
      for (int64_t& d : s)
        if (d == 1 && below(2)) d = 2 + below(2);
      if (s.empty())
        s = Shape{2, 3};
      else if (s.size() < 4 && below(3) == 0)
        s.insert(0, 1 + below(2));
      return {{"shape", s}};
    }
    if (op == "slice" || op == "pad") {
      Shape a, b, c;
      for (int64_t d : in) {
        int64_t begin = op == "pad" ? below(2) : d == 0 || below(2) ? 0 : below(d);
        a.push_back(begin);
        b.push_back(op == "pad" ? below(2) : below(2) ? d : begin + below(d - begin + 1));
        c.push_back(1 + (below(4) == 0));
      }
      if (op == "pad") return {{"lo", a}, {"hi", b}, {"value", 0.0}};
      return {{"begin", a}, {"end", b}, {"step", c}};
    }
    if (op == "reduce_sum" || op == "reduce_max") {
      Shape dims;
      for (int i = 0; i < in.size(); ++i)
        if (below(2)) dims.push_back(i);
      return {{"dims", dims}};
    }
    if (op == "constant") {
      constexpr double kValues[] = {0, 1, -1, 2, 0.5, -0.0, 3, 0.1};
      double v = kValues[below(std::size(kValues))];
      DType t = below(4) ? base_ : kBool;
      if (is_floating(t)) return {{"value", v}, {"dtype", t}};
      return {{"value", static_cast<int64_t>(t == kBool ? v != 0 : std::fabs(v))}, {"dtype", t}};
    }
    if (op == "concat") return {{"dim", int64_t{0}}};
    return {};
  }

  void step() {
    const char* name = kOps[below(std::size(kOps))];
    const OpDef* op = op_table().find(name);
    if (!op) return;
    if (op == &gather_op || op == &index_select_op) return choose(*op);
    Node n;
    n.op = op;
    int operands = op->num_inputs >= 0 ? op->num_inputs : 1 + below(2);
    std::vector<TensorType> types;
    for (int i = 0; i < operands; ++i) {
      Value v = any();
      for (int tries = 0; tries < 10 && i > 0 && g_->type(v).shape != types[i - 1].shape; ++tries) v = any();
      n.inputs.push_back(v);
      types.push_back(g_->type(v));
    }
    n.attrs = attributes(name, types.empty() ? Shape() : types[0].shape);
    for (const TensorType& t : types)
      if (t.shape.numel() > 200 || (std::string_view(name) == "cast" && is_floating(t.dtype) == false && below(2)))
        return;
    try {
      n.outputs = op->infer({*op, n.attrs, types});
    } catch (const Error&) {
      return;
    }
    n.line = {"random.cc", static_cast<uint32_t>(g_->size())};
    g_->add(std::move(n));
  }

  Value add(const OpDef& op, std::initializer_list<Value> in, Attrs attrs) {
    Node n;
    n.op = &op;
    std::vector<TensorType> types;
    for (Value v : in) {
      n.inputs.push_back(v);
      types.push_back(g_->type(v));
    }
    n.attrs = std::move(attrs);
    n.outputs = op.infer({op, n.attrs, types});
    n.line = {"random.cc", static_cast<uint32_t>(g_->size())};
    return {g_->add(std::move(n)), 0};
  }
  Value number(int64_t value) { return add(constant_op, {}, {{"value", value}, {"dtype", kInt64}}); }

  /// Gathers elements of a value at valid positions, which are consecutive or computed from another value.
  void choose(const OpDef& op) {
    const Value x = any();
    const Shape shape = g_->type(x).shape;
    if (shape.empty() || shape.numel() == 0 || shape.numel() > 200) return;
    const int dim = below(shape.size());
    Value at;
    for (int tries = 0; tries < 8 && !at.valid(); ++tries) {
      const Value v = any();
      const TensorType& t = g_->type(v);
      bool fits = t.shape.numel() > 0 && t.shape.numel() <= 60 && (t.dtype == kBool || t.dtype == kInt64);
      if (&op == &index_select_op) {
        fits &= t.shape.size() == 1;
      } else {
        fits &= t.shape.size() == shape.size();
        for (int d = 0; fits && d < shape.size(); ++d) fits = d == dim || t.shape[d] <= shape[d];
      }
      if (fits) at = v;
    }
    if (!at.valid()) {
      const int64_t count = 1 + below(shape[dim]);
      at = add(iota_op, {},
               {{"size", count}, {"start", int64_t{shape[dim] - 1}}, {"step", int64_t{-1}}, {"dtype", kInt64}});
      if (&op == &gather_op) {
        Shape s = Shape::filled(shape.size(), 1), whole = shape;
        s[dim] = whole[dim] = count;
        at = add(reshape_op, {at}, {{"shape", s}});
        if (below(2)) at = add(broadcast_op, {at}, {{"shape", whole}});
      }
    } else {
      if (g_->type(at).dtype == kBool) at = add(cast_op, {at}, {{"dtype", kInt64}});
      const Shape s = g_->type(at).shape;
      auto whole = [&](int64_t value) {
        return s.empty() ? number(value) : add(broadcast_op, {number(value)}, {{"shape", s}});
      };
      at = add(*op_table().find("maximum"), {at, whole(0)}, {});
      at = add(*op_table().find("minimum"), {at, whole(shape[dim] - 1)}, {});
    }
    add(op, {x, at}, {{"dim", int64_t{dim}}});
  }

  std::mt19937& random_;
  int nodes_;
  DType base_ = kFloat32;
  Ref<Graph> g_ = make_ref<Graph>();
};

template <class T>
T special(std::mt19937& random) {
  if constexpr (std::is_same_v<T, double>) {
    constexpr double kSpecial[] = {0.0,    -0.0,  INFINITY, -INFINITY, NAN,  1.0,  -1.0,
                                   1e-310, 1e-41, -6e-8,    65504,     3e38, 1e300};
    if (random() % 3 == 0) return kSpecial[random() % std::size(kSpecial)];
    return std::ldexp(static_cast<double>(static_cast<int32_t>(random())), static_cast<int>(random() % 20) - 40);
  } else {
    constexpr int64_t kSpecial[] = {0, 1, -1, 2, INT32_MIN, INT32_MAX, INT64_MIN, INT64_MAX, 255};
    if (random() % 3 == 0) return kSpecial[random() % std::size(kSpecial)];
    return static_cast<int64_t>(random() % 41) - 20;
  }
}

}  // namespace

Ref<Graph> random_ops_graph(std::mt19937& random, int nodes) { return Generator(random, nodes).run(); }

Tensor random_tensor(std::mt19937& random, const TensorType& type) {
  Tensor t = Tensor::empty(type);
  char* p = static_cast<char*>(t.view_for_kernel().data);
  for (int64_t i = 0; i < type.shape.numel(); ++i) {
    auto put = [&](auto v) { std::memcpy(p + i * sizeof v, &v, sizeof v); };
    double d = special<double>(random);
    int64_t n = special<int64_t>(random);
    switch (type.dtype) {
      case kFloat32:
        put(static_cast<float>(d));
        break;
      case kFloat64:
        put(d);
        break;
      case kBFloat16:
        put(bfloat16(static_cast<float>(d)));
        break;
      case kFloat16:
        put(float16(static_cast<float>(d)));
        break;
      case kBool:
        put(static_cast<uint8_t>(n & 1));
        break;
      default:
        with_integer(t.dtype(), [&]<class T>(T) { put(static_cast<T>(n)); });
    }
  }
  return t;
}

std::vector<Tensor> random_arguments(std::mt19937& random, const Graph& g) {
  std::vector<Tensor> args;
  for (Value v : g.inputs) args.push_back(random_tensor(random, g.type(v)));
  return args;
}

std::string difference(const Tensor& a, const Tensor& b) {
  if (a.dtype() != b.dtype() || !(a.shape() == b.shape())) return str_cat("type ", a.type(), " and ", b.type());
  if (!is_floating(a.dtype())) {
    auto x = a.to_vector<int64_t>(), y = b.to_vector<int64_t>();
    for (size_t i = 0; i < x.size(); ++i)
      if (x[i] != y[i]) return str_cat("element ", i, ": ", x[i], " and ", y[i]);
    return "";
  }
  auto x = a.to_vector<double>(), y = b.to_vector<double>();
  for (size_t i = 0; i < x.size(); ++i) {
    bool same = (x[i] != x[i] && y[i] != y[i]) || (x[i] == y[i] && std::signbit(x[i]) == std::signbit(y[i]));
    if (!same) return str_cat("element ", i, " of ", a.type(), ": ", x[i], " and ", y[i]);
  }
  return "";
}

std::string difference(const Graph& a, const Graph& b, std::span<const Tensor> args) {
  std::vector<Tensor> x = interpret(a, args), y = interpret(b, args);
  if (x.size() != y.size()) return str_cat(x.size(), " and ", y.size(), " outputs");
  for (size_t i = 0; i < x.size(); ++i)
    if (std::string d = difference(x[i], y[i]); !d.empty()) return str_cat("output ", i, ": ", d);
  return "";
}

}  // namespace weft::testing
