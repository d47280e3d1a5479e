#include "compiler/exec/plan/failing.h"

#include <algorithm>
#include <set>

#include "framework/ir/op_def.h"
#include "ops/core/collectives/collective.h"
#include "ops/core/functions/may_throw.h"

namespace weft::internal {
namespace {

bool is_derivative(const Node& n) { return n.backward && !n.op->is(kCustom); }

}  // namespace

bool ends_sum_over_replicas(const Graph& g, int32_t id) {
  const Node& n = g.node(id);
  const Node& c = n.op == &collective_wait_op ? g.node(n.inputs[0]) : n;
  return c.op == (&c == &n ? &all_reduce_op : &all_reduce_start_op) && c.attrs.get<std::string>("axes") == "replica";
}

std::vector<bool> failing_nodes(const Graph& g) {
  std::vector<bool> failing(g.size());
  std::set<Value> checked;  // integers that a node has looked up
  for (int32_t id = 0; id < g.size(); ++id) {
    const Node& n = g.node(id);
    if (ends_sum_over_replicas(g, id)) failing[id] = true;
    if (!may_throw(n)) continue;
    bool all_checked = is_derivative(n);
    for (Value v : n.inputs)
      if (const DType t = g.type(v).dtype; t == kInt64 || t == kInt32) all_checked &= !checked.insert(v).second;
    failing[id] = !all_checked;
  }
  return failing;
}

std::vector<int32_t> writes_last(const Graph& g, const std::vector<int32_t>& order) {
  std::vector<bool> written(g.size());
  for (const CellWrite& w : g.writes) written[w.value.node] = true;
  const auto is_write = [&](int32_t id) { return written[id] && !g.node(id).inputs.empty(); };
  const std::vector<bool> failing = failing_nodes(g);
  const auto first = std::find_if(order.begin(), order.end(), is_write);
  const auto last =
      std::find_if(order.rbegin(), std::make_reverse_iterator(first), [&](int32_t id) { return failing[id]; }).base();
  // Side effects keep their order.
  const auto stays = [&](int32_t id) { return g.node(id).op->is(kSideEffect) || g.node(id).op->is(kOrdered); };
  const auto sums = [&](int32_t id) { return ends_sum_over_replicas(g, id); };
  if (first == last || (std::any_of(first, last, stays) && !std::any_of(first, last, sums))) return order;
  std::vector<bool> needed(g.size());
  for (auto at = last; at != first;) {
    const int32_t id = *--at;
    if (failing[id] || stays(id)) needed[id] = true;
    if (!needed[id]) continue;
    for (Value v : g.node(id).inputs) needed[v.node] = true;
  }
  std::vector<int32_t> result = order;
  std::stable_partition(result.begin() + (first - order.begin()), result.begin() + (last - order.begin()),
                        [&](int32_t id) { return needed[id]; });
  return result;
}

}  // namespace weft::internal
