// What passes make nodes with.
#pragma once
#include <span>
#include <utility>
#include <vector>

#include "framework/ir/op_def.h"

namespace weft {

/// A node of `op` on values of `to`, with inferred types, and line, scope and gradient marks of the node it stands for.
inline Node new_node(const Graph& to, const OpDef& op, std::span<const Value> in, Attrs attrs, const Node& stands_for) {
  Node n;
  n.op = &op;
  n.attrs = std::move(attrs);
  n.line = stands_for.line;
  n.scope = stands_for.scope;
  n.no_grad = stands_for.no_grad;
  n.backward = stands_for.backward;
  std::vector<TensorType> types;
  for (Value v : in) {
    n.inputs.push_back(v);
    types.push_back(to.type(v));
  }
  n.outputs = op.infer({op, n.attrs, types});
  return n;
}

/// " at model.cc:43", or nothing for a node without a line: for notes.
inline std::string at_line(const Node& n) {
  const std::string line = n.line.to_string();
  return line.empty() ? "" : str_cat(" at ", line);
}

}  // namespace weft
