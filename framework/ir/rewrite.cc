#include "framework/ir/rewrite.h"

namespace weft {

Ref<Graph> graph_of_node(Node n, std::span<const TensorType> operands) {
  auto g = make_ref<Graph>();
  n.inputs.clear();
  for (const TensorType& t : operands) n.inputs.push_back(g->add_input(t));
  const int32_t id = g->add(std::move(n));
  for (int32_t i = 0; i < static_cast<int32_t>(g->node(id).outputs.size()); ++i) g->outputs.push_back({id, i});
  return g;
}

Rewriter::Rewriter(const Graph& from) : from_(from), to_(make_ref<Graph>()), values_(from.size()) {
  to_->cells = from.cells;
  to_->captured = from.captured;
  to_->stage = from.stage;
}

bool Rewriter::has(Value old) const {
  const auto& v = values_[old.node];
  return old.index < static_cast<int32_t>(v.size()) && v[old.index].valid();
}

Value Rewriter::operator()(Value old) const {
  WEFT_BUG_IF(!has(old), "rewrite: %", old.node, ".", old.index, " (", from_.node(old).op->name,
              ") is used but was neither copied nor replaced");
  return values_[old.node][old.index];
}

int32_t Rewriter::copy(int32_t id) {
  Node n = from_.node(id);
  for (Value& v : n.inputs) v = (*this)(v);
  int32_t now = to_->add(std::move(n));
  for (int32_t i = 0; i < static_cast<int32_t>(to_->node(now).outputs.size()); ++i) map({id, i}, {now, i});
  return now;
}

void Rewriter::map(Value old, Value now) {
  auto& v = values_[old.node];
  if (static_cast<int32_t>(v.size()) <= old.index) v.resize(old.index + 1);
  v[old.index] = now;
}

Ref<Graph> Rewriter::finish() {
  for (Value v : from_.inputs) {
    if (!has(v)) copy(v.node);
    to_->inputs.push_back((*this)(v));
  }
  for (const CellWrite& w : from_.writes) to_->writes.push_back({w.cell, (*this)(w.value)});
  for (Value v : from_.outputs) to_->outputs.push_back((*this)(v));
  return std::move(to_);
}

std::vector<std::vector<int32_t>> users(const Graph& g) {
  std::vector<std::vector<int32_t>> u(g.size());
  for (int32_t i = 0; i < g.size(); ++i)
    for (Value v : g.node(i).inputs) u[v.node].push_back(i);
  return u;
}

}  // namespace weft
