#include "compiler/cost/peak_estimate.h"

#include <algorithm>

#include "compiler/cost/keep_cost.h"
#include "framework/ir/op_def.h"

namespace weft {

int64_t estimated_peak(const Graph& g) {
  const KeepCosts costs(g);
  std::vector<int32_t> last(g.size(), -1);  // reader of a node's memory, or of values computed from it inside kernels
  for (Value v : g.outputs) last[costs.value(v).base.node] = g.size();
  for (const CellWrite& w : g.writes) last[costs.value(w.value).base.node] = g.size();
  std::vector<int64_t> change(g.size() + 1, 0);
  for (int32_t id = g.size() - 1; id >= 0; --id) {
    const Node& n = g.node(id);
    bool stored = false;
    int64_t bytes = 0;
    for (int32_t k = 0; k < static_cast<int32_t>(n.outputs.size()) && !costs.node(id).alias; ++k) {
      stored |= costs.value({id, k}).stored || costs.value({id, k}).stored_after;
      bytes += n.outputs[k].nbytes();
    }
    const int32_t read = stored ? id : std::max(last[id], id);
    for (Value v : n.inputs) {
      int32_t& base = last[costs.value(v).base.node];
      base = std::max(base, read);
    }
    if (!stored || last[id] >= g.size() || (n.inputs.empty() && n.op->is(kStructural))) continue;
    change[id] += bytes;
    change[std::max(last[id], id) + 1] -= bytes;
  }
  int64_t live = 0, most = 0;
  for (int64_t c : change) most = std::max(most, live += c);
  return most;
}

}  // namespace weft
