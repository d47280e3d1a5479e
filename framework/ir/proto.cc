// Graph::to_proto: writes protobuf's wire format directly, so that the core does not link protobuf. proto_test.cc
// checks it against graph.proto.
#include <bit>
#include <cstring>

#include "framework/ir/equal.h"
#include "framework/ir/op_def.h"

namespace weft {
namespace {

/// Fields of one message. Scalars equal to their default are omitted, as in proto3.
class Message {
 public:
  Message& integer(int field, int64_t v) {
    if (v == 0) return *this;
    return key(field, 0).varint(static_cast<uint64_t>(v));
  }
  Message& bytes(int field, std::string_view v) {
    if (v.empty()) return *this;
    return always(field, v);
  }
  Message& always(int field, std::string_view v) {
    key(field, 2).varint(v.size());
    text_ += v;
    return *this;
  }
  Message& message(int field, const Message& m) { return always(field, m.text_); }
  Message& real(int field, double v) {  // field of a oneof: written even if zero
    key(field, 1);
    uint64_t u = std::bit_cast<uint64_t>(v);
    for (int i = 0; i < 8; ++i) text_ += static_cast<char>(u >> 8 * i);
    return *this;
  }
  Message& present(int field, int64_t v) { return key(field, 0).varint(static_cast<uint64_t>(v)); }
  Message& packed(int field, const Shape& values) {
    if (values.empty()) return *this;
    Message m;
    for (int64_t v : values) m.varint(static_cast<uint64_t>(v));
    return message(field, m);
  }
  std::string text() && { return std::move(text_); }

 private:
  Message& key(int field, int wire) { return varint(static_cast<uint64_t>(field) << 3 | static_cast<uint64_t>(wire)); }
  Message& varint(uint64_t v) {
    for (; v >= 128; v >>= 7) text_ += static_cast<char>(v | 128);
    text_ += static_cast<char>(v);
    return *this;
  }
  std::string text_;
};

Message value(Value v) {
  Message m;
  m.integer(1, v.node).integer(2, v.index);
  return m;
}

Message type(const TensorType& t) {
  Message m;
  m.bytes(1, to_string_view(t.dtype)).bytes(2, t.device.to_string()).packed(3, t.shape);
  return m;
}

Message graph(const Graph& g);

Message attribute(const Attrs::Entry& e) {
  Message m;
  m.bytes(1, e.first);
  std::visit(
      [&]<class T>(const T& v) {
        if constexpr (std::is_same_v<T, int64_t>) m.present(2, v);
        if constexpr (std::is_same_v<T, double>) m.real(3, v);
        if constexpr (std::is_same_v<T, bool>) m.present(4, v);
        if constexpr (std::is_same_v<T, DType>) m.always(5, to_string_view(v));
        if constexpr (std::is_same_v<T, std::string>) m.always(6, v);
        if constexpr (std::is_same_v<T, Shape>) m.message(7, Message().packed(1, v));
        if constexpr (std::is_same_v<T, Ref<Graph>>)
          if (v) m.message(8, graph(*v));
      },
      e.second);
  return m;
}

Message node(const Node& n) {
  Message m;
  m.bytes(1, n.op->name);
  for (Value v : n.inputs) m.message(2, value(v));
  for (const Attrs::Entry& e : n.attrs.entries()) m.message(3, attribute(e));
  for (const TensorType& t : n.outputs) m.message(4, type(t));
  if (n.line.line) m.bytes(5, n.line.file).integer(6, n.line.line);
  m.bytes(7, n.scope ? n.scope : "").integer(8, n.no_grad);
  m.integer(9, n.backward).integer(10, n.recomputed);
  return m;
}

Message captured(const Tensor& t) {
  Message m;
  m.message(1, type(t.type()));
  if (!internal::is_inline(t)) return m;
  const Tensor host = internal::on_host(t);
  StridedView v = host.view_for_kernel();
  std::string data;
  Shape index = Shape::filled(v.shape.size(), 0);
  for (int64_t i = 0, n = v.numel(), size = itemsize(v.dtype); i < n; ++i) {
    int64_t at = 0;
    for (int d = 0; d < index.size(); ++d) at += index[d] * v.strides[d];
    data.append(static_cast<const char*>(v.data) + at * size, size);
    for (int d = index.size() - 1; d >= 0 && ++index[d] == v.shape[d]; --d) index[d] = 0;
  }
  m.bytes(2, data);
  return m;
}

Message graph(const Graph& g) {
  Message m;
  m.bytes(1, g.stage);
  for (int32_t i = 0; i < g.size(); ++i) m.message(2, node(g.node(i)));
  for (Value v : g.inputs) m.message(3, value(v));
  for (const Ref<Cell>& c : g.cells) {
    Message cell;
    cell.bytes(1, c->name).message(2, type(c->type)).integer(3, c->is_parameter).integer(4, c->requires_grad);
    m.message(4, cell);
  }
  for (const Tensor& t : g.captured) m.message(5, captured(t));
  for (const CellWrite& w : g.writes) m.message(6, Message().integer(1, w.cell).message(2, value(w.value)));
  for (Value v : g.outputs) m.message(7, value(v));
  return m;
}

}  // namespace

std::string Graph::to_proto() const { return graph(*this).text(); }

}  // namespace weft
