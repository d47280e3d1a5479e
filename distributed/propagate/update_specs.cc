#include "distributed/propagate/update_specs.h"

#include <algorithm>
#include <string_view>

#include "ops/core/core.h"
#include "ops/core/functions/loop.h"
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
      const bool each = u.each && !adds_gradients(n);
      give(n.inputs[i], {operand_spec(mesh, rule, i, split), is_floating(t.dtype) ? u.dtype : t.dtype, each, u.cell});
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

bool takes_terms(const Graph& g, const Node& n, size_t i) {
  if (i >= 32 || !(n.op->linear >> i & 1) || n.op->is(kContraction)) return false;
  if (n.op != &cast_op) return true;
  const DType from = g.type(n.inputs[0]).dtype, to = n.outputs[0].dtype;
  if (is_floating(to)) return from == to || !is_floating(from) || itemsize(to) > itemsize(from);
  return !is_floating(from) && itemsize(to) >= itemsize(from);
}

bool adds_gradients(const Node& n) {
  return n.backward && n.op->is(kPointwise) && n.op->jointly && !n.attrs.has(kSumOfParts);
}

std::vector<std::vector<Readers>> find_readers(const Graph& g) {
  constexpr int32_t kNone = -1, kSeveral = -2;
  // Ends are nodes with a value whose sum is needed. Terms go there through results as large as a value, or smaller.
  struct Ends {
    int32_t uses = 0, large = kNone, small = kNone;
    int64_t numbers = 0;  // all elements of smaller results
  };
  std::vector<std::vector<Readers>> all;
  std::vector<std::vector<Ends>> ends;
  for (int32_t id = 0; id < g.size(); ++id) {
    all.emplace_back(g.node(id).outputs.size());
    ends.emplace_back(g.node(id).outputs.size());
  }
  const auto leaves = [&](Value v) {
    ends[v.node][v.index].uses += 2;
    all[v.node][v.index].need_sum = true;
  };
  for (Value v : g.outputs) leaves(v);
  for (const CellWrite& w : g.writes) leaves(w.value);
  for (int32_t id = g.size(); id-- > 0;) {
    const Node& n = g.node(id);
    int32_t end = kNone;
    for (size_t o = 0; o < n.outputs.size(); ++o) {
      const Ends& e = ends[id][o];
      Readers& r = all[id][o];
      const int64_t numbers = n.outputs[o].shape.numel();
      r.together = e.small == kSeveral && numbers <= std::min(e.numbers, kFewNumbers);
      r.need_sum = r.need_sum || r.together || e.large == kSeveral;
      const int32_t own = r.need_sum ? id : e.large != kNone ? e.large : e.small < 0 ? id : e.small;
      end = o == 0 ? own : id;
      if (e.uses != 1) r.only = -1;
    }
    // The largest of sums is no sum of largest values.
    const bool adds = n.op->reduction == Reduction::kNone || n.op->reduction == Reduction::kSum;
    for (size_t i = 0; i < n.inputs.size(); ++i) {
      const Value v = n.inputs[i];
      Ends& e = ends[v.node][v.index];
      ++e.uses;
      all[v.node][v.index].only = id;
      const bool squares = !n.op->jointly && i > 0 && v == n.inputs[0];
      if (!adds || squares || is_broadcast(n) || !takes_terms(g, n, i)) all[v.node][v.index].need_sum = true;
      const int64_t numbers = n.outputs[0].shape.numel();
      const bool smaller = numbers < g.type(v).shape.numel();
      if (smaller) e.numbers += numbers;
      int32_t& to = smaller ? e.small : e.large;
      to = to == kNone || to == end ? end : kSeveral;
    }
  }
  return all;
}

}  // namespace weft::dist
