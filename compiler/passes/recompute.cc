#include "compiler/passes/recompute.h"

#include <algorithm>
#include <map>

#include "compiler/cost/keep_cost.h"
#include "compiler/cost/max_flow.h"
#include "compiler/passes/dce.h"
#include "framework/ir/op_def.h"
#include "framework/ir/rewrite.h"

namespace weft {
namespace {

class Recomputer {
 public:
  Recomputer(const Graph& g, const RecomputePolicy& policy, const KeepCosts& costs)
      : g_(g), policy_(policy), cost_(costs) {}

  RecomputeResult run() {
    if (!cost_.any_backward()) return {};
    for (int32_t id = 0; id < g_.size(); ++id)
      if (!cost_.node(id).backward) ++forward_nodes_;
    find_allowed();
    cut();
    if (result_.copies > 0) rewrite();
    result_.again = std::move(redo_);
    return std::move(result_);
  }

 private:
  bool forward(int32_t id) const { return !cost_.node(id).backward; }
  bool early(int32_t id) const { return rank_[id] < policy_.share * forward_nodes_; }

  // ---- the values that may be recomputed ----

  void find_allowed() {
    rank_.resize(g_.size());
    for (int32_t id = 0, rank = 0; id < g_.size(); ++id) rank_[id] = forward(id) ? rank++ : rank;
    allowed_.resize(g_.size());
    for (int32_t id = 0; id < g_.size(); ++id) {
      const NodeCost& c = cost_.node(id);
      if (c.backward || c.always) continue;
      allowed_[id] = c.redo == Redo::kFree || c.redo == Redo::kCheap ||
                     (policy_.expensive && (c.redo == Redo::kReduce || c.redo == Redo::kExpensive));
    }
    if (policy_.expensive) fix_narrow_places();
  }

  // Keeps the values that are alive at every span-th narrow place: a place where the rest of the forward part reads one
  // large value and little else.
  void fix_narrow_places() {
    std::vector<int32_t> last(g_.size(), -1);  // the last forward reader of the node's memory
    for (int32_t id = 0; id < g_.size(); ++id)
      if (forward(id) && !cost_.node(id).alias)
        for (Value v : g_.node(id).inputs) last[cost_.value(v).base.node] = id;
    std::vector<int32_t> alive;
    int32_t before = -1;  // the widest value at the last narrow place
    // Whether a product has run since then. Without one, the live value is cheap to recompute (an embedding).
    bool contracted = false;
    for (int32_t id = 0; id < g_.size(); ++id) {
      if (!forward(id) || cost_.node(id).alias) continue;
      contracted |= g_.node(id).op->is(kContraction);
      std::erase_if(alive, [&](int32_t n) { return last[n] <= id; });
      int64_t bytes = 0;
      for (int32_t k = 0; k < static_cast<int32_t>(g_.node(id).outputs.size()); ++k)
        bytes += cost_.value({id, k}).bytes;
      if (bytes > 0 && last[id] > id && !cost_.node(id).always) alive.push_back(id);
      int64_t sum = 0, most = 0;
      int32_t widest = -1;
      for (int32_t n : alive) {
        int64_t b = 0;
        for (int32_t k = 0; k < static_cast<int32_t>(g_.node(n).outputs.size()); ++k) b += cost_.value({n, k}).bytes;
        sum += b;
        if (b > most) {
          most = b;
          widest = n;
        }
      }
      if (widest < 0 || widest == before || sum - most > most / 8) continue;
      before = widest;
      if (!contracted) continue;
      contracted = false;
      if (policy_.span > 0 && static_cast<int32_t>(result_.narrow.size()) % policy_.span == 0)
        for (int32_t n : alive) allowed_[n] = false;
      result_.narrow.push_back(static_cast<double>(rank_[id] + 1) / forward_nodes_);
    }
  }

  // ---- the kept values ----

  int64_t keep_cost(Value v) const {
    const ValueCost& c = cost_.value(v);
    const double byte = early(v.node) ? policy_.stored_byte : policy_.late_stored_byte;
    return c.keep + static_cast<int64_t>(byte * static_cast<double>(c.bytes) * kCostPerByte);
  }

  void cut() {
    // The nodes whose recomputation could give a value that backward reads, and the values that may be kept.
    std::vector<bool> read(g_.size()), needed(g_.size());
    for (int32_t id = g_.size() - 1; id >= 0; --id) {
      if (!forward(id)) {
        for (Value v : g_.node(id).inputs)
          if (forward(v.node)) read[v.node] = needed[v.node] = true;
      } else if (needed[id] && allowed_[id]) {
        for (Value v : g_.node(id).inputs) needed[v.node] = true;
      }
    }
    std::vector<int32_t> vertex(g_.size(), -1);  // vertex of the node; its results follow
    int32_t vertices = 2;
    for (int32_t id = 0; id < g_.size(); ++id) {
      if (!needed[id] || cost_.node(id).always) continue;
      vertex[id] = vertices;
      vertices += 1 + static_cast<int32_t>(g_.node(id).outputs.size());
    }
    FlowNetwork net(vertices);
    const int32_t source = 0, sink = 1;
    auto out = [&](Value v) { return vertex[v.node] + 1 + v.index; };
    for (int32_t id = 0; id < g_.size(); ++id) {
      const NodeCost& c = cost_.node(id);
      if (!forward(id)) {
        for (Value v : g_.node(id).inputs)
          if (vertex[v.node] >= 0) net.add_arc(out(v), sink, FlowNetwork::kInfinite);
        continue;
      }
      if (vertex[id] < 0) continue;
      net.add_arc(source, vertex[id], allowed_[id] ? c.again : FlowNetwork::kInfinite);
      for (int32_t k = 0; k < static_cast<int32_t>(g_.node(id).outputs.size()); ++k) {
        // For an alias, its base is kept.
        const bool base = !c.alias || !allowed_[id];
        net.add_arc(vertex[id], out({id, k}), base ? keep_cost({id, k}) : FlowNetwork::kInfinite);
      }
      if (!allowed_[id]) continue;
      for (Value v : g_.node(id).inputs)
        if (vertex[v.node] >= 0) net.add_arc(out(v), vertex[id], FlowNetwork::kInfinite);
    }
    net.run(source, sink);

    redo_.resize(g_.size());
    int64_t total = 0;
    std::vector<Value> kept;
    for (int32_t id = 0; id < g_.size(); ++id) {
      if (vertex[id] < 0) continue;
      redo_[id] = net.on_sink_side(vertex[id]);
      if (redo_[id]) {
        total += cost_.node(id).again;
        result_.copies += cost_.node(id).redo != Redo::kFree;
        continue;
      }
      for (int32_t k = 0; k < static_cast<int32_t>(g_.node(id).outputs.size()); ++k) {
        if (!net.on_sink_side(out({id, k}))) continue;
        const ValueCost& c = cost_.value({id, k});
        total += c.keep;
        kept.push_back(c.base);
      }
    }
    std::sort(kept.begin(), kept.end());
    kept.erase(std::unique(kept.begin(), kept.end()), kept.end());
    for (Value v : kept) result_.kept_bytes += cost_.value(v).bytes;
    result_.seconds = cost_.seconds(total);
  }

  // ---- the new graph ----

  void rewrite() {
    // Copies that are stored in memory are made once. Other copies are made once per level of the backward part, where
    // they run inside the kernels that read them.
    shared_.resize(g_.size());
    for (int32_t id = 0; id < g_.size(); ++id) {
      if (!forward(id) || !redo_[id]) continue;
      const bool memory = KeepCosts::reads_memory(*g_.node(id).op);
      if (memory || cost_.node(id).redo == Redo::kExpensive) shared_[id] = true;
      for (int32_t k = 0; k < static_cast<int32_t>(g_.node(id).outputs.size()); ++k)
        if (!cost_.node(id).alias && cost_.value({id, k}).stored_after) shared_[id] = true;
      if (memory)
        for (Value v : g_.node(id).inputs) shared_[cost_.value(v).base.node] = true;
    }
    for (int32_t id = 0; id < g_.size(); ++id)
      if (cost_.node(id).alias && shared_[cost_.value({id, 0}).base.node]) shared_[id] = true;

    Rewriter r(g_);
    rewriter_ = &r;
    result_.copies = 0;
    for (int32_t id = 0; id < g_.size(); ++id) {
      r.copy(id, [&](Node& n) {
        if (forward(id)) return;
        n.inputs = g_.node(id).inputs;
        for (Value& v : n.inputs) v = again(v, cost_.node(id).level);
      });
    }
    Ref<Graph> all = r.finish();
    Ref<Graph> less = dce(*all);
    result_.graph = less ? less : all;
  }

  /// The value for a reader in this part of the backward: the kept one, or a copy.
  Value again(Value v, int32_t where) {
    if (!forward(v.node) || !redo_[v.node]) return (*rewriter_)(v);
    const std::pair<int32_t, int32_t> key{v.node, shared_[v.node] ? -1 : where};
    auto it = copies_.find(key);
    if (it == copies_.end()) {
      Node n = g_.node(v.node);
      // The operands of a copy that is stored in memory are computed in its own kernel.
      const int32_t inside = shared_[v.node] && !cost_.node(v.node).alias ? -2 - v.node : where;
      bool changed = cost_.node(v.node).redo != Redo::kFree || n.inputs.empty();
      for (Value& in : n.inputs) {
        const Value now = again(in, inside);
        changed |= now != (*rewriter_)(in);
        in = now;
      }
      int32_t id = (*rewriter_)({v.node, 0}).node;
      if (changed) {
        n.backward = n.recomputed = true;
        count(n);
        id = rewriter_->graph().add(std::move(n));
      }
      it = copies_.emplace(key, id).first;
    }
    return {it->second, v.index};
  }

  void count(const Node& n) {
    ++result_.copies;
    result_.flops += op_cost(rewriter_->graph(), n).flops;
  }

  const Graph& g_;
  const RecomputePolicy& policy_;
  const KeepCosts& cost_;
  int32_t forward_nodes_ = 0;
  std::vector<int32_t> rank_;  // the number of forward nodes before it
  std::vector<bool> allowed_, redo_, shared_;
  Rewriter* rewriter_ = nullptr;
  std::map<std::pair<int32_t, int32_t>, int32_t> copies_;  // (node, where) -> node of the new graph
  RecomputeResult result_;
};

}  // namespace

RecomputeResult recompute_by(const Graph& g, const RecomputePolicy& policy) {
  return recompute_by(g, policy, KeepCosts(g, policy.small));
}

RecomputeResult recompute_by(const Graph& g, const RecomputePolicy& policy, const KeepCosts& costs) {
  return Recomputer(g, policy, costs).run();
}

}  // namespace weft
