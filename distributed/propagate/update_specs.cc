#include "distributed/propagate/update_specs.h"

#include <string_view>

#include "ops/core/core.h"
#include "ops/core/indexing/moe.h"

namespace weft::dist {

UpdateSpecs find_update_specs(const Mesh& mesh, const Graph& g, const Pins& pins) {
  UpdateSpecs updates(static_cast<size_t>(g.size()));
  for (int32_t id = 0; id < g.size(); ++id) updates[id].resize(g.node(id).outputs.size());
  auto give = [&](Value v, const UpdateSpec& u) {
    auto& slot = updates[v.node][v.index];
    if (!slot && !g.type(v).shape.empty()) slot = u;
  };
  for (const CellWrite& w : g.writes) {
    const auto& pin = pins.cells[w.cell];
    if (pin) give(w.value, {pin->update, g.type(w.value).dtype, pin->reduce_each, w.cell});
  }
  for (int32_t id = g.size(); id-- > 0;) {
    const Node& n = g.node(id);
    if (n.inputs.empty() || !n.outputs.size() || !updates[id][0]) continue;
    const UpdateSpec u = *updates[id][0];
    if (!n.op->is(kPointwise) && !is_rearranged(n) && !is_passed_on(n)) continue;
    const Rule rule = rule_of(g, n);
    const FactorSplit split = split_of(mesh, rule, rule.map.out[0], u.spec);
    if (!(result_spec(mesh, rule, 0, split) == u.spec)) continue;
    for (size_t i = 0; i < n.inputs.size(); ++i) {
      const TensorType& t = g.type(n.inputs[i]);
      if (t.shape.numel() != n.outputs[0].shape.numel() || t.shape.empty()) continue;
      give(n.inputs[i], {operand_spec(mesh, rule, i, split), is_floating(t.dtype) ? u.dtype : t.dtype, u.each, u.cell});
    }
  }
  return updates;
}

Sums find_sums(const Graph& g, const Pins& pins, const UpdateSpecs& updates) {
  const auto size = static_cast<size_t>(g.size());
  Sums s{std::vector<bool>(size, false), std::vector<bool>(size, false)};
  if (pins.activations.empty()) return s;
  // Numbers of uses, by node: all uses, and uses that combine rows by token, whose sums have fewer bytes than the rows.
  std::vector<int32_t> used(size, 0), by_tokens(size, 0);
  for (int32_t id = 0; id < g.size(); ++id) {
    const Node& n = g.node(id);
    for (Value v : n.inputs) ++used[v.node];
    if (pins.experts.empty() && (n.op == &combine_rows_op || n.op == &row_dots_op)) ++by_tokens[n.inputs[0].node];
  }
  for (Value v : g.outputs) ++used[v.node];
  for (const CellWrite& w : g.writes) ++used[w.value.node];
  for (int32_t id = 0; id < g.size(); ++id) {
    const Node& n = g.node(id);
    if (std::string_view(n.op->name) != "add" || updates[id][0]) continue;
    bool all = true;
    for (Value v : n.inputs) {
      const auto i = static_cast<size_t>(v.node);
      const bool product = g.node(v).op->is(kProduct);
      all &= used[i] == 1 && (product || s.adds_up[i]) && g.type(v).shape == n.outputs[0].shape;
    }
    if (!all) continue;
    s.adds_up[id] = true;
    for (Value v : n.inputs) s.added_up[v.node] = true;
  }
  for (size_t i = 0; i < size; ++i)
    if ((g.node(static_cast<int32_t>(i)).op == &grouped_dot_op || s.adds_up[i]) && used[i] > 0 &&
        used[i] == by_tokens[i])
      s.added_up[i] = true;
  return s;
}

}  // namespace weft::dist
