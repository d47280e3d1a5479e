#include "compiler/exec/plan/order.h"

#include <algorithm>

#include "compiler/passes/dce.h"
#include "framework/ir/op_def.h"
#include "framework/ir/rewrite.h"

namespace weft::internal {

std::vector<int32_t> insertion_order(const Graph& g) {
  const std::vector<bool> live = live_nodes(g);
  std::vector<int32_t> order;
  for (int32_t id = 0; id < g.size(); ++id)
    if (live[id]) order.push_back(id);
  return order;
}

namespace {

class LaunchScheduler {
 public:
  explicit LaunchScheduler(const Graph& g) : g_(g), order_(insertion_order(g)), n_(g.size()) {
    for (NodeProgress& i : n_) i = {};
    number_memory();
    number_edges();
  }

  std::vector<int32_t> run() {
    for (int32_t id : order_) {
      if (n_[id].lazy) continue;
      emit(id);
      drain();
    }
    for (int32_t id : order_) emit(id);  // lazy nodes that are outputs
    return std::move(result_);
  }

 private:
  struct NodeProgress {
    bool live = false, lazy = false, done = false;
    int32_t waits = 0;            // operands and edges that are neither lazy nor done
    std::vector<int32_t> before;  // nodes that must come first
    std::vector<int32_t> after;
    SmallVec<int32_t, 3> reads;  // memory blocks, each once
    SmallVec<int32_t, 1> makes;
  };
  struct LiveBlock {
    int64_t bytes = 0;
    int32_t uses = 0;
    bool pinned = false;
    std::vector<int32_t> users;
  };

  void number_memory() {
    std::vector<SmallVec<int32_t, 1>> block(g_.size());
    for (int32_t id : order_) {
      const Node& n = g_.node(id);
      NodeProgress& i = n_[id];
      i.live = true;
      const bool view = n.op->view && !n.inputs.empty();
      for (size_t k = 0; k < n.outputs.size(); ++k) {
        if (view || n.op->is(kSameMemory)) {
          block[id].push_back(block[n.inputs[0].node][n.inputs[0].index]);
          continue;
        }
        blocks_.push_back({n.outputs[k].nbytes(), 0, n.inputs.empty() && n.op->is(kStructural), {}});
        block[id].push_back(static_cast<int32_t>(blocks_.size()) - 1);
        i.makes.push_back(block[id].back());
      }
      if (view) continue;  // its users read the base
      for (Value v : n.inputs) {
        const int32_t b = block[v.node][v.index];
        if (std::find(i.reads.begin(), i.reads.end(), b) != i.reads.end()) continue;
        i.reads.push_back(b);
        blocks_[b].users.push_back(id);
        ++blocks_[b].uses;
      }
    }
    for (Value v : g_.outputs) blocks_[block[v.node][v.index]].pinned = true;
    for (const CellWrite& w : g_.writes) blocks_[block[w.value.node][w.value.index]].pinned = true;
  }

  void number_edges() {
    auto edge = [&](int32_t from, int32_t to) {
      n_[to].before.push_back(from);
      n_[from].after.push_back(to);
    };
    int32_t effect = -1;
    std::vector<std::vector<int32_t>> readers(g_.cells.size());
    std::vector<int32_t> cell_of(g_.size(), -1);  // the cell whose old value the node is a view of
    for (int32_t id : order_) {
      const Node& n = g_.node(id);
      for (Value v : n.inputs) {
        edge(v.node, id);
        if (cell_of[v.node] >= 0) readers[cell_of[v.node]].push_back(id);
      }
      if (is_cell(n)) cell_of[id] = static_cast<int32_t>(cell_index(n));
      if (n.op->view && !n.inputs.empty()) cell_of[id] = cell_of[n.inputs[0].node];
      if (n.op->is(kSideEffect) || n.op->is(kOrdered)) {
        if (effect >= 0) edge(effect, id);
        effect = id;
      }
    }
    for (const CellWrite& w : g_.writes)
      for (int32_t r : readers[w.cell])
        if (r < w.value.node) edge(r, w.value.node);
    for (int32_t id : order_) {
      NodeProgress& i = n_[id];
      const Node& n = g_.node(id);
      i.lazy = !n.op->is(kSideEffect) && !n.op->is(kOrdered);
      for (int32_t b : i.before) i.lazy &= n_[b].lazy;
      // A node that frees an operand's memory is not lazy: to delay it would keep that memory.
      for (int32_t b : i.reads) i.lazy &= blocks_[b].pinned || n_[id].makes.empty() || is_source_block(b);
      for (int32_t b : i.before) i.waits += !n_[b].lazy;
    }
  }
  bool is_source_block(int32_t b) const { return blocks_[b].bytes <= 64; }

  int64_t delta(const NodeProgress& i) const {
    int64_t d = 0;
    for (int32_t b : i.makes) d += blocks_[b].bytes;
    for (int32_t b : i.reads)
      if (blocks_[b].uses == 1 && !blocks_[b].pinned) d -= blocks_[b].bytes;
    return d;
  }

  /// Appends a node to the result, after the lazy nodes that it needs.
  void emit(int32_t root) {
    stack_.push_back(root);
    while (!stack_.empty()) {
      const int32_t id = stack_.back();
      NodeProgress& i = n_[id];
      if (i.done) {
        stack_.pop_back();
        continue;
      }
      bool ready = true;
      for (int32_t b : i.before)
        if (!n_[b].done) {
          stack_.push_back(b);
          ready = false;
        }
      if (!ready) continue;
      stack_.pop_back();
      i.done = true;
      result_.push_back(id);
      for (int32_t a : i.after) {
        if (!i.lazy) --n_[a].waits;
        if (n_[a].waits == 0) candidates_.push_back(a);
      }
      for (int32_t b : i.reads) {
        LiveBlock& x = blocks_[b];
        if (--x.uses != 1) continue;
        for (int32_t u : x.users)
          if (!n_[u].done && n_[u].waits == 0) candidates_.push_back(u);
      }
    }
  }

  void drain() {
    while (!candidates_.empty()) {
      const int32_t id = candidates_.back();
      candidates_.pop_back();
      const NodeProgress& i = n_[id];
      if (i.done || i.lazy || i.waits > 0 || delta(i) > 0 || g_.node(id).op->is(kOrdered)) continue;
      emit(id);
    }
  }

  const Graph& g_;
  std::vector<int32_t> order_, result_, stack_, candidates_;
  std::vector<NodeProgress> n_;
  std::vector<LiveBlock> blocks_;
};

}  // namespace

std::vector<int32_t> frugal_order(const Graph& g) { return LaunchScheduler(g).run(); }

Ref<Graph> reorder(const Graph& g, const std::vector<int32_t>& order) {
  Rewriter r(g);
  for (int32_t id : order) r.copy(id);
  r.graph().stage = "scheduled";
  return r.finish();
}

}  // namespace weft::internal
