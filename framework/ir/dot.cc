// Graph::to_dot: Graphviz text, drawn from top to bottom. Scopes are boxes, cells are cylinders, arguments are
// ellipses.
#include <map>

#include "framework/ir/op_def.h"
#include "framework/ir/text.h"

namespace weft {
namespace {

/// Quotes `s` for Graphviz; a newline in `s` becomes a centred line break.
std::string label(std::string_view s) {
  std::string r = "\"";
  for (char c : s) {
    if (c == '"' || c == '\\') r += '\\';
    if (c == '\n')
      r += "\\n";
    else if (static_cast<unsigned char>(c) >= 32)
      r += c;
  }
  return r + '"';
}

const char* look(const Node& n) {
  if (is_argument(n)) return "shape=ellipse, style=filled, fillcolor=\"#d9ead3\"";
  if (n.op->leaf == internal::Leaf::kCaptured) return "shape=ellipse, style=filled, fillcolor=\"#eeeeee\"";
  if (n.op->is(kContraction)) return "style=\"filled,rounded\", fillcolor=\"#f9cb9c\"";
  if (n.op->is(kReduction)) return "style=\"filled,rounded\", fillcolor=\"#fff2cc\"";
  if (n.op->is(kSideEffect)) return "style=\"filled,rounded\", fillcolor=\"#f4cccc\"";
  if (n.op->is(kView)) return "style=\"rounded,dashed\"";
  return "style=rounded";
}

std::string node_text(const Graph& g, int32_t id) {
  const Node& n = g.node(id);
  std::string s = str_cat('%', id, ' ', n.op->name);
  if (is_cell(n)) s = str_cat('%', id, ' ', g.cells[n.attrs.i("index")]->name);
  if (!is_leaf(n) && !n.attrs.empty()) {
    s += " {";
    bool first = true;
    for (const auto& [key, value] : n.attrs.entries()) {
      s += str_cat(first ? "" : ", ", key, '=');
      first = false;
      if (std::holds_alternative<Ref<Graph>>(value))
        s += "graph";
      else
        internal::append_value(s, value, "");
    }
    s += '}';
  }
  for (const TensorType& t : n.outputs) s += str_cat('\n', t);
  if (n.line.line) s += str_cat('\n', internal::base_name(n.line.file), ':', n.line.line);
  return s;
}

}  // namespace

std::string Graph::to_dot() const {
  std::string out = str_cat("digraph ", label(stage), " {\n  node [shape=box, fontname=\"monospace\", fontsize=10];\n");
  std::map<std::string_view, std::string> scopes;  // the nodes of each box, in order
  for (int32_t id = 0; id < size(); ++id) {
    const Node& n = node(id);
    std::string line = str_cat("n", id, " [label=", label(node_text(*this, id)), ", ",
                               is_cell(n) ? "shape=cylinder, style=filled, fillcolor=\"#cfe2f3\"" : look(n), "];\n");
    if (n.scope && *n.scope)
      scopes[n.scope] += "    " + line;
    else
      out += "  " + line;
  }
  int box = 0;
  for (const auto& [scope, nodes] : scopes)
    out +=
        str_cat("  subgraph cluster_", box++, " {\n    label=", label(scope), "; color=\"#999999\";\n", nodes, "  }\n");
  for (int32_t id = 0; id < size(); ++id)
    for (Value v : node(id).inputs) {
      out += str_cat("  n", v.node, " -> n", id);
      if (node(v).outputs.size() > 1) out += str_cat(" [taillabel=\"", v.index, "\"]");
      out += ";\n";
    }
  for (const CellWrite& w : writes)
    out +=
        str_cat("  w", w.cell, " [label=", label("write " + cells[w.cell]->name),
                ", shape=cylinder, style=filled, fillcolor=\"#9fc5e8\"];\n  n", w.value.node, " -> w", w.cell, ";\n");
  for (size_t i = 0; i < outputs.size(); ++i)
    out += str_cat("  o", i, " [label=", label(str_cat("output ", i)),
                   ", shape=ellipse, style=filled, fillcolor=\"#d9ead3\"];\n  n", outputs[i].node, " -> o", i, ";\n");
  return out + "}\n";
}

}  // namespace weft
