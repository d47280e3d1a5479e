// Helpers with which passes make nodes.
#pragma once
#include <span>
#include <utility>
#include <vector>

#include "framework/ir/op_def.h"
#include "ops/core/indexing/view.h"

namespace weft {

/// A node of `op` on values of `to`, with inferred types, and with the line, scope and gradient marks of the node that
/// it replaces.
inline Node new_node(const Graph& to, const OpDef& op, std::span<const Value> in, Attrs attrs, const Node& replaced) {
  Node n;
  n.op = &op;
  n.attrs = std::move(attrs);
  n.line = replaced.line;
  n.scope = replaced.scope;
  n.no_grad = replaced.no_grad;
  n.backward = replaced.backward;
  std::vector<TensorType> types;
  for (Value v : in) {
    n.inputs.push_back(v);
    types.push_back(to.type(v));
  }
  n.outputs = infer_types(op, n.attrs, types);
  return n;
}

/// Adds new_node() to `graph`; returns its first result.
inline Value add_node(Graph& graph, const OpDef& op, std::span<const Value> in, Attrs attrs, const Node& replaced) {
  return {graph.add(new_node(graph, op, in, std::move(attrs), replaced)), 0};
}

/// `v` with this shape.
inline Value add_reshape(Graph& graph, Value v, const Shape& shape, const Node& replaced) {
  if (graph.type(v).shape == shape) return v;
  return add_node(graph, reshape_op, {&v, 1}, {{"shape", shape}}, replaced);
}

/// " at model.cc:43" for notes; empty for a node without a line.
inline std::string at_line(const Node& n) {
  const std::string line = n.line.to_string();
  return line.empty() ? "" : str_cat(" at ", line);
}

}  // namespace weft
