#include "distributed/overlap/dependencies.h"

#include <algorithm>

#include "compiler/passes/dce.h"
#include "distributed/overlap/network.h"
#include "framework/ir/op_def.h"

namespace weft::dist {

Dependencies::Dependencies(const Graph& g)
    : live(live_nodes(g)), light(g.size()), ready(g.size(), -1), use(g.size(), g.size()), before(g.size()) {
  std::vector<int32_t> cell_of(g.size(), -1);
  std::vector<std::vector<int32_t>> readers(g.cells.size());
  std::vector<int32_t> stamp(g.size(), -1);
  for (int32_t id = 0; id < g.size(); ++id) {
    if (!live[id]) continue;
    const Node& n = g.node(id);
    const bool pinned = communicates(n) || n.op->is(kOrdered) || n.op->is(kSideEffect);
    bool sources = true;
    for (Value v : n.inputs) {
      if (cell_of[v.node] >= 0) readers[cell_of[v.node]].push_back(id);
      auto add = [&](int32_t from) {
        sources = false;
        if (stamp[from] == id) return;
        stamp[from] = id;
        before[id].push_back(from);
      };
      if (!light[v.node]) {
        add(v.node);
      } else {
        for (int32_t from : before[v.node]) add(from);
      }
    }
    const bool view = n.op->view && !n.inputs.empty();
    light[id] = !pinned && (sources || view);
    if (is_cell(n)) cell_of[id] = static_cast<int32_t>(cell_index(n));
    if (view) cell_of[id] = cell_of[n.inputs[0].node];
  }
  for (const CellWrite& w : g.writes) {
    const int32_t to = w.value.node;
    if (light[to]) continue;
    for (int32_t from : readers[w.cell])
      if (from < to && !light[from] && std::find(before[to].begin(), before[to].end(), from) == before[to].end())
        before[to].push_back(from);
  }
  for (int32_t id = 0; id < g.size(); ++id) {
    if (!live[id]) continue;
    for (int32_t from : before[id]) {
      ready[id] = std::max(ready[id], from);
      if (!light[id]) use[from] = std::min(use[from], id);
    }
  }
}

Value CopyOnDemand::operator()(Value v) {
  std::vector<int32_t> stack{v.node};
  while (!stack.empty()) {
    const int32_t id = stack.back();
    if (r_.has({id, 0})) {
      stack.pop_back();
      continue;
    }
    if (make_ && make_(id)) continue;
    const size_t depth = stack.size();
    for (Value in : g_.node(id).inputs)
      if (!r_.has(in)) stack.push_back(in.node);
    if (stack.size() > depth) continue;
    stack.pop_back();
    r_.copy(id);
  }
  return r_(v);
}

void CopyOnDemand::copy_results() {
  for (Value v : g_.inputs) (*this)(v);
  for (const CellWrite& w : g_.writes) (*this)(w.value);
  for (Value v : g_.outputs) (*this)(v);
}

bool same_structure(const Graph& a, const Graph& b) {
  if (a.size() != b.size() || a.outputs != b.outputs || a.writes != b.writes) return false;
  for (int32_t id = 0; id < a.size(); ++id)
    if (a.node(id).op != b.node(id).op || !(a.node(id).inputs == b.node(id).inputs)) return false;
  return true;
}

}  // namespace weft::dist
