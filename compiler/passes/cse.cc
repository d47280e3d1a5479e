#include "compiler/passes/cse.h"

#include <unordered_map>

#include "compiler/passes/pending_grad.h"
#include "framework/base/hash.h"
#include "framework/ir/rewrite.h"

namespace weft {

static bool mergeable(const Node& n) {
  if (is_kept(n)) return true;
  return !n.recomputed && !n.op->is(kSideEffect) && !n.op->is(kStructural) && !n.outputs.empty();
}

static uint64_t hash_of(const Node& n) {
  uint64_t h = hash_combine(reinterpret_cast<uintptr_t>(n.op), n.attrs.hash());
  for (Value v : n.inputs) h = hash_combine(h, static_cast<uint64_t>(v.node) << 32 | static_cast<uint32_t>(v.index));
  return h;
}

Ref<Graph> cse(const Graph& g) {
  const PendingGrad pending(g);
  Rewriter r(g);
  std::unordered_multimap<uint64_t, int32_t> seen;  // hash -> node of the new graph
  bool changed = false;
  for (int32_t id = 0; id < g.size(); ++id) {
    const Node& old = g.node(id);
    if (!mergeable(old) || pending.keeps(id)) {
      r.copy(id);
      continue;
    }
    Node n = old;
    for (Value& v : n.inputs) v = r(v);
    if (n.op->is(kCommutative) && n.inputs.size() >= 2 && n.inputs[1] < n.inputs[0])
      std::swap(n.inputs[0], n.inputs[1]);
    const uint64_t h = hash_of(n);
    auto [begin, end] = seen.equal_range(h);
    int32_t same = -1;
    for (auto it = begin; it != end && same < 0; ++it) {
      const Node& x = r.graph().node(it->second);
      if (x.op != n.op || !(x.outputs == n.outputs) || !(x.attrs == n.attrs)) continue;
      if (!pending.none() && x.no_grad != n.no_grad) continue;
      auto sorted = x.inputs;
      if (n.op->is(kCommutative) && sorted.size() >= 2 && sorted[1] < sorted[0]) std::swap(sorted[0], sorted[1]);
      if (sorted == n.inputs) same = it->second;
    }
    if (same >= 0) {
      changed = true;
      r.map(id, same);
    } else {
      seen.emplace(h, r.copy(id));  // operands must match in the same order
    }
  }
  return changed ? r.finish() : nullptr;
}

}  // namespace weft
