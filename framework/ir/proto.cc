// Graphs as protobuf (graph.proto): Graph::to_proto and parse_graph_proto. This is a separate library: steps that are
// compiled ahead of time do not link protobuf.
#include <climits>
#include <cstring>

#include "framework/ir/equal.h"
#include "framework/ir/graph.pb.h"
#include "framework/ir/graph_reader.h"
#include "framework/ir/rewrite.h"
#include "framework/ir/text.h"

namespace weft {
namespace {

// ---- writing ----

void write_type(const TensorType& t, TypeProto& p) {
  p.set_dtype(std::string(to_string_view(t.dtype)));
  p.set_device(t.device.to_string());
  p.mutable_shape()->Assign(t.shape.begin(), t.shape.end());
}

void write(Value v, ValueProto& p) {
  p.set_node(v.node);
  p.set_index(v.index);
}

void write(const Graph& g, GraphProto& p);

void write(const Attrs::AttrEntry& e, AttrProto& p) {
  p.set_name(e.first);
  std::visit(
      [&]<class T>(const T& v) {
        if constexpr (std::is_same_v<T, int64_t>) p.set_i(v);
        if constexpr (std::is_same_v<T, double>) p.set_f(v);
        if constexpr (std::is_same_v<T, bool>) p.set_b(v);
        if constexpr (std::is_same_v<T, DType>) p.set_dtype(std::string(to_string_view(v)));
        if constexpr (std::is_same_v<T, std::string>) p.set_s(v);
        if constexpr (std::is_same_v<T, Shape>) p.mutable_ints()->mutable_values()->Assign(v.begin(), v.end());
        if constexpr (std::is_same_v<T, Ref<Graph>>)
          if (v) write(*v, *p.mutable_graph());
      },
      e.second);
}

void write(const Node& n, NodeProto& p) {
  p.set_op(n.op->name);
  for (Value v : n.inputs) write(v, *p.add_inputs());
  for (const Attrs::AttrEntry& e : n.attrs.entries()) write(e, *p.add_attrs());
  for (const TensorType& t : n.outputs) write_type(t, *p.add_outputs());
  if (n.line.line) {
    p.set_file(n.line.file);
    p.set_line(n.line.line);
  }
  if (n.scope && *n.scope) p.set_scope(n.scope);
  if (n.no_grad) p.set_no_grad(true);
  if (n.backward) p.set_backward(true);
  if (n.recomputed) p.set_recomputed(true);
}

void write(const Tensor& t, CapturedProto& p) {
  if (!t.defined()) return;
  write_type(t.type(), *p.mutable_type());
  if (!internal::is_inline(t)) return;
  const Tensor host = internal::on_host(t);
  const StridedView v = host.view_for_kernel();
  std::string data;
  Shape index = Shape::filled(v.shape.size(), 0);
  for (int64_t i = 0, n = v.numel(), size = itemsize(v.dtype); i < n; ++i) {
    int64_t at = 0;
    for (int d = 0; d < index.size(); ++d) at += index[d] * v.strides[d];
    data.append(static_cast<const char*>(v.data) + at * size, size);
    for (int d = index.size() - 1; d >= 0 && ++index[d] == v.shape[d]; --d) index[d] = 0;
  }
  p.set_data(data);
}

void write(const Graph& g, GraphProto& p) {
  p.set_stage(g.stage);
  for (int32_t i = 0; i < g.size(); ++i) write(g.node(i), *p.add_nodes());
  for (Value v : g.inputs) write(v, *p.add_inputs());
  for (const Ref<Cell>& c : g.cells) {
    CellProto& cell = *p.add_cells();
    cell.set_name(c->name);
    write_type(c->type, *cell.mutable_type());
    cell.set_is_parameter(c->is_parameter);
    cell.set_requires_grad(c->requires_grad);
  }
  for (const Tensor& t : g.captured) write(t, *p.add_captured());
  for (const CellWrite& w : g.writes) {
    WriteProto& one = *p.add_writes();
    one.set_cell(w.cell);
    write(w.value, *one.mutable_value());
  }
  for (Value v : g.outputs) write(v, *p.add_outputs());
}

// ---- reading ----

Value value(const ValueProto& p) { return {p.node(), p.index()}; }

class ProtoReader final : internal::GraphReader {
 public:
  explicit ProtoReader(const OpTable& ops) : ops_(ops) {}

  Ref<Graph> run(std::string_view bytes) {
    GraphProto p;
    if (bytes.size() > INT_MAX || !p.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())) || !p.end())
      refuse(str_cat(bytes.size(), " bytes that are no complete message GraphProto"),
             "all bytes that to_proto() returned");
    const Ref<Graph> g = graph(p);
    internal::verify_read(*g, "parse_graph_proto");
    return g;
  }

 private:
  std::string place() const final { return place_; }

  // During its lifetime, errors name this part of the message too.
  class ErrorPart {
   public:
    template <class... Ts>
    explicit ErrorPart(ProtoReader& r, const Ts&... name) : place_(r.place_), before_(place_.size()) {
      place_ += str_cat(name..., ": ");
    }
    ~ErrorPart() { place_.resize(before_); }
    ErrorPart(const ErrorPart&) = delete;

   private:
    std::string& place_;
    size_t before_;
  };

  TensorType type(const TypeProto& p) const {
    TensorType t{dtype_named(p.dtype()), device_named(p.device()), ints(p.shape())};
    check_shape(t);
    return t;
  }
  template <class Integers>
  Shape ints(const Integers& values) const {
    if (values.size() > kMaxDims) refuse(str_cat(values.size(), " integers"), str_cat("at most ", kMaxDims));
    Shape s;
    for (int64_t v : values) s.push_back(v);
    return s;
  }

  // Checks the rules that verify_read() does not see or relies on: names, counts, operands that exist, elements,
  // nesting.
  Ref<Graph> graph(const GraphProto& p) {
    const Level level(*this);
    auto g = make_ref<Graph>();
    g->stage = p.stage();
    for (const CellProto& c : p.cells()) {
      const ErrorPart part(*this, "cell c", g->cells.size());
      auto cell = make_ref<Cell>();
      cell->name = c.name();
      cell->type = type(c.type());
      cell->is_parameter = c.is_parameter();
      cell->requires_grad = c.requires_grad();
      g->cells.push_back(std::move(cell));
    }
    for (const CapturedProto& c : p.captured()) {
      const ErrorPart part(*this, "captured t", g->captured.size());
      g->captured.push_back(captured(c));
    }
    for (const NodeProto& n : p.nodes()) add(*g, n);
    for (const ValueProto& v : p.inputs()) g->inputs.push_back(value(v));
    for (const WriteProto& w : p.writes()) g->writes.push_back({w.cell(), value(w.value())});
    for (const ValueProto& v : p.outputs()) g->outputs.push_back(value(v));
    return g;
  }

  Tensor captured(const CapturedProto& p) {
    if (!p.has_type()) return {};
    const TensorType t = type(p.type());
    if (p.data().empty()) return zeros(t);
    check_inline(t);
    if (static_cast<int64_t>(p.data().size()) != t.nbytes())
      refuse(str_cat(p.data().size(), " bytes of data"), str_cat(t.nbytes(), " for ", t));
    for (char c : p.data())
      if (t.dtype == kBool && (c & ~1)) refuse(str_cat("a bool of ", static_cast<int>(c)), "0 or 1");
    Tensor x = Tensor::empty(t);
    std::memcpy(x.view_for_kernel().data, p.data().data(), p.data().size());
    return x;
  }

  void add(Graph& g, const NodeProto& p) {
    const ErrorPart part(*this, "node %", g.size());
    Node n;
    n.op = &op_named(p.op(), ops_);
    const ErrorPart op(*this, n.op->name);
    for (const ValueProto& v : p.inputs()) n.inputs.push_back(operand(g, value(v)));
    check_count(*n.op, "operands", n.inputs.size(), n.op->num_inputs);
    std::vector<Attrs::AttrEntry> attrs;
    for (const AttrProto& a : p.attrs()) {
      const ErrorPart attribute(*this, internal::quoted(a.name()));
      attrs.emplace_back(a.name(), attr(a));
    }
    n.attrs = distinct(std::move(attrs));
    for (const TypeProto& t : p.outputs()) n.outputs.push_back(type(t));
    check_count(*n.op, "results", n.outputs.size(), n.op->num_outputs);
    if (p.line()) n.line = {intern(p.file()), p.line()};
    n.scope = intern(p.scope());
    n.no_grad = p.no_grad();
    n.backward = p.backward();
    n.recomputed = p.recomputed();
    g.add(std::move(n));
  }

  Value operand(const Graph& g, Value v) const {
    if (v.node < 0 || v.node >= g.size() || v.index < 0 || v.index >= static_cast<int32_t>(g.node(v).outputs.size()))
      refuse(str_cat("operand %", v.node, '.', v.index), "a result of an earlier node");
    return v;
  }

  AttrValue attr(const AttrProto& p) {
    switch (p.value_case()) {
      case AttrProto::kI:
        return p.i();
      case AttrProto::kF:
        return p.f();
      case AttrProto::kB:
        return p.b();
      case AttrProto::kDtype:
        return dtype_named(p.dtype());
      case AttrProto::kS:
        return p.s();
      case AttrProto::kInts:
        return ints(p.ints().values());
      case AttrProto::kGraph:
        return graph(p.graph());
      case AttrProto::VALUE_NOT_SET:
        break;
    }
    return Ref<Graph>();
  }

  const OpTable& ops_;
  std::string place_ = "parse_graph_proto: ";
};

}  // namespace

std::string Graph::to_proto() const {
  GraphProto p;
  write(*this, p);
  p.set_end(true);
  std::string bytes;
  WEFT_CHECK(p.ByteSizeLong() <= INT_MAX && p.SerializeToString(&bytes), "to_proto: the graph has ", p.ByteSizeLong(),
             " bytes as protobuf; need at most ", INT_MAX);
  return bytes;
}

Ref<Graph> parse_graph_proto(std::string_view bytes, const OpTable& ops) { return ProtoReader(ops).run(bytes); }

}  // namespace weft
