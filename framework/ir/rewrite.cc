#include "framework/ir/rewrite.h"

namespace weft {

bool NodeCopier::has(Value old) const {
  const auto& v = values_[old.node];
  return old.index < static_cast<int32_t>(v.size()) && v[old.index].valid();
}

Value NodeCopier::operator()(Value old) const {
  WEFT_BUG_IF(!has(old), "rewrite: %", old.node, ".", old.index, " (", from_.node(old).op->name,
              ") is used but was neither copied nor replaced");
  return values_[old.node][old.index];
}

Value NodeCopier::bring(Value old) {
  if (!has(old)) {
    for (Value v : from_.node(old).inputs) bring(v);
    copy(old.node);
  }
  return (*this)(old);
}

void NodeCopier::map(Value old, Value now) {
  auto& v = values_[old.node];
  if (static_cast<int32_t>(v.size()) <= old.index) v.resize(old.index + 1);
  v[old.index] = now;
}

void NodeCopier::map(int32_t old, int32_t now) {
  for (int32_t i = 0; i < static_cast<int32_t>(from_.node(old).outputs.size()); ++i) map({old, i}, {now, i});
}

Rewriter::Rewriter(const Graph& from, Ref<Graph> to) : NodeCopier(from, *to), to_(std::move(to)) {
  to_->cells = from.cells;
  to_->captured = from.captured;
  to_->stage = from.stage;
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

Ref<Graph> graph_of_one(Node n, std::span<const TensorType> in) {
  auto g = make_ref<Graph>();
  n.inputs.clear();
  for (const TensorType& t : in) n.inputs.push_back(g->add_input(t));
  const auto outputs = static_cast<int32_t>(n.outputs.size());
  const int32_t id = g->add(std::move(n));
  for (int32_t i = 0; i < outputs; ++i) g->outputs.push_back({id, i});
  return g;
}

std::vector<std::vector<int32_t>> users(const Graph& g) {
  std::vector<std::vector<int32_t>> u(g.size());
  for (int32_t i = 0; i < g.size(); ++i)
    for (Value v : g.node(i).inputs) u[v.node].push_back(i);
  return u;
}

std::vector<int32_t> last_uses(const Graph& g) {
  std::vector<int32_t> last(g.size(), -1);
  for (int32_t id = 0; id < g.size(); ++id)
    for (Value v : g.node(id).inputs) last[v.node] = id;
  for (Value v : g.outputs) last[v.node] = g.size();
  for (const CellWrite& w : g.writes) last[w.value.node] = g.size();
  return last;
}

}  // namespace weft
