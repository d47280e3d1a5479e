#include "compiler/passes/dce.h"

#include "framework/ir/op_def.h"
#include "framework/ir/rewrite.h"

namespace weft {

std::vector<bool> live_nodes(const Graph& g) {
  std::vector<bool> live(g.size());
  for (Value v : g.inputs) live[v.node] = true;
  for (Value v : g.outputs) live[v.node] = true;
  for (const CellWrite& w : g.writes) live[w.value.node] = true;
  for (int32_t id = g.size() - 1; id >= 0; --id) {
    const Node& n = g.node(id);
    if (n.op->is(kSideEffect)) live[id] = true;
    if (!live[id]) continue;
    for (Value v : n.inputs) live[v.node] = true;
  }
  return live;
}

/// The new index of each kept entry, -1 for the others. Removes the others from `table`.
template <class T>
static std::vector<int64_t> compact(std::vector<T>& table, const std::vector<bool>& keep) {
  std::vector<int64_t> now(keep.size(), -1);
  std::vector<T> kept;
  for (size_t i = 0; i < keep.size(); ++i) {
    if (!keep[i]) continue;
    now[i] = static_cast<int64_t>(kept.size());
    kept.push_back(std::move(table[i]));
  }
  table = std::move(kept);
  return now;
}

Ref<Graph> dce(const Graph& g) {
  std::vector<bool> live = live_nodes(g), cell(g.cells.size()), captured(g.captured.size());
  bool all = true;
  for (int32_t id = 0; id < g.size(); ++id) {
    const Node& n = g.node(id);
    if (!live[id])
      all = false;
    else if (is_kept(n))
      (is_cell(n) ? cell : captured)[n.attrs.i("index")] = true;
  }
  for (const CellWrite& w : g.writes) cell[w.cell] = true;
  for (bool b : cell) all &= b;
  for (bool b : captured) all &= b;
  if (all) return nullptr;

  Rewriter r(g);
  Graph& to = r.graph();
  std::vector<int64_t> cell_now = compact(to.cells, cell), captured_now = compact(to.captured, captured);
  for (int32_t id = 0; id < g.size(); ++id) {
    if (!live[id]) continue;
    r.copy(id, [&](Node& n) {
      if (!is_kept(n)) return;
      const int64_t was = n.attrs.i("index"), now = is_cell(n) ? cell_now[was] : captured_now[was];
      if (now != was) n.attrs = n.attrs.with("index", now);
    });
  }
  Ref<Graph> result = r.finish();
  for (CellWrite& w : result->writes) w.cell = static_cast<int32_t>(cell_now[w.cell]);
  return result;
}

}  // namespace weft
