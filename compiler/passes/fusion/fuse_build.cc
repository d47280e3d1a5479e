#include "compiler/passes/fusion/fuse_build.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "compiler/loop_ir/fused.h"
#include "compiler/loop_ir/lower_group.h"
#include "framework/ir/op_def.h"
#include "framework/ir/rewrite.h"
#include "ops/core/creation.h"
#include "ops/core/indexing/view.h"

namespace weft::fusion {
namespace {

// A transposed operand with at least this many elements is worth a generated kernel.
constexpr int64_t kWorthTiles = 1 << 16;
// Generated kernels write f32 results with at least this many elements past the caches.
constexpr int64_t kPastCaches = 8 << 20;

class BodyMaker {
 public:
  BodyMaker(const Partition& p, const Flow& flow, int32_t group)
      : p_(p), g_(p.graph()), old_(g_.graph()), flow_(flow), group_(group) {}

  GroupBody run() {
    const Group& x = p_.group(group_);
    members_ = x.nodes;
    members_.insert(members_.end(), x.clones.begin(), x.clones.end());
    std::sort(members_.begin(), members_.end());
    find_live();
    if (live_.empty() || body_.nodes.empty()) return std::move(body_);
    if (stays(x)) return std::move(body_);
    body_.graph = make_ref<Graph>();
    body_.graph->stage = "fused";
    count_views();
    for (int32_t id : live_) add(id);
    for (Value v : body_.outputs) body_.graph->outputs.push_back(now_.at(v));
    return std::move(body_);
  }

 private:
  bool member(int32_t id) const { return std::binary_search(members_.begin(), members_.end(), id); }

  /// Finds the members that are needed outside, and their operands.
  void find_live() {
    const Group& x = p_.group(group_);
    std::unordered_set<int32_t> alive;
    for (auto it = members_.rbegin(); it != members_.rend(); ++it) {
      const int32_t id = *it;
      const bool own = p_.of(id) == group_;
      for (int32_t k = 0; own && k < static_cast<int32_t>(old_.node(id).outputs.size()); ++k)
        if (flow_.needed({id, k})) {
          body_.outputs.push_back({id, k});
          alive.insert(id);
        }
      if (own && x.library) alive.insert(id);
      if (!alive.contains(id)) continue;
      live_.push_back(id);
      if (own) body_.nodes.push_back(id);
      for (const Read& r : g_.reads(id))
        if (member(r.value.node)) alive.insert(r.value.node);
    }
    std::reverse(live_.begin(), live_.end());
    std::reverse(body_.nodes.begin(), body_.nodes.end());
    std::sort(body_.outputs.begin(), body_.outputs.end());
  }

  /// Whether the group is one op that its eager kernel runs as well as a generated one.
  bool stays(const Group& x) const {
    if (x.library) return true;
    if (live_.size() != 1 || body_.nodes.size() != 1) return false;
    if (x.product >= 0 && goes_to_concat(x.product)) return false;  // it stores its tiles into the concat's result
    for (Value v : old_.node(live_[0]).inputs)
      if (g_.is_free(v.node) && old_.type(v).nbytes() > 4096 && !constant(v.node)) return false;
    // Eager kernels read a transposed operand line by line, generated ones by tiles.
    if (g_.role(live_[0]) == Role::kPointwise && g_.points(live_[0]) >= kWorthTiles)
      for (Value v : old_.node(live_[0]).inputs)
        if (old_.type(v).shape.numel() >= kWorthTiles && is_transposed(v)) return false;
    // Eager kernels write through the caches, which first read each line.
    return !(g_.role(live_[0]) == Role::kPointwise && g_.points(live_[0]) >= kPastCaches &&
             old_.type({live_[0], 0}).dtype == kFloat32);
  }
  /// Whether v is a view in which neighbours along the last dim are not neighbours in memory.
  bool is_transposed(Value v) const {
    for (; g_.role(v.node) == Role::kView; v = old_.node(v).inputs[0]) {
      const Node& n = old_.node(v);
      if (n.op->placing != Placing::kPermute) continue;
      const Shape& dims = n.attrs.ints("dims");
      if (dims.size() > 1 && dims[dims.size() - 1] != dims.size() - 1) return true;
    }
    return false;
  }
  bool goes_to_concat(int32_t product) const {
    const auto readers = g_.readers(product);
    const DType t = old_.node(product).outputs[0].dtype;
    return readers.size() == 1 && old_.node(g_.read(readers[0]).node).op == &concat_op && !g_.pinned({product, 0}) &&
           (t == kFloat32 || t == kBFloat16 || t == kFloat16) && loop_ir::cannot_lower(*alone(product)).empty();
  }
  Ref<Graph> alone(int32_t id) const {
    std::vector<TensorType> types;
    for (Value v : old_.node(id).inputs) types.push_back(old_.type(v));
    return graph_of_one(old_.node(id), types);
  }
  bool constant(int32_t id) const {
    while (old_.node(id).op->view && !old_.node(id).inputs.empty()) id = old_.node(id).inputs[0].node;
    return old_.node(id).op == &constant_op;
  }

  /// Finds the roots that the group reads through several views.
  void count_views() {
    for (int32_t id : live_)
      for (Value v : old_.node(id).inputs) {
        if (g_.is_free(v.node)) continue;
        const Value r = g_.root(v);
        if (member(r.node)) continue;
        auto [it, fresh] = seen_as_.try_emplace(g_.value_id(r), v);
        if (!fresh && !(it->second == v)) several_.insert(g_.value_id(r));
      }
  }

  void add(int32_t id) {
    Node n = old_.node(id);
    for (Value& v : n.inputs) v = place(v);
    const int32_t now = body_.graph->add(std::move(n));
    for (int32_t k = 0; k < static_cast<int32_t>(old_.node(id).outputs.size()); ++k) now_[{id, k}] = {now, k};
  }

  Value input(Value v) {
    const Value now = body_.graph->add_input(old_.type(v));
    body_.inputs.push_back(v);
    return now_[v] = now;
  }

  Value place(Value v) {
    if (auto it = now_.find(v); it != now_.end()) return it->second;
    const Node& n = old_.node(v);
    if (g_.is_free(v.node)) {
      add(v.node);
      return now_.at(v);
    }
    if (g_.role(v.node) != Role::kView) return input(v);
    const Value root = g_.root(v);
    if (!member(root.node) && !inside(v, root)) return input(v);
    Node copy = n;
    copy.inputs[0] = place(n.inputs[0]);
    while (copy.inputs.size() > 1) copy.inputs.pop_back();
    return now_[v] = {body_.graph->add(std::move(copy)), 0};
  }

  /// Whether node v, in the chain of views of an operand, is part of the kernel. Broadcasts are: the operand is then
  /// read once. Other views are if the kernel reads the operand through several views. A node that permutes, slices or
  /// makes windows is not, nor is one before it.
  bool inside(Value v, Value root) const {
    const bool several = several_.contains(g_.value_id(root));
    const auto moves = [](const Node& n) { return n.op->placing == Placing::kPermute || is_part(n); };
    bool repeats = false, moved = false;
    for (Value u = v; !(u == root); u = old_.node(u).inputs[0]) {
      repeats |= is_broadcast(old_.node(u));
      moved |= moves(old_.node(u));
    }
    return !moves(old_.node(v)) && (repeats || (several && !moved));
  }

  const Partition& p_;
  const FusionGraph& g_;
  const Graph& old_;
  const Flow& flow_;
  int32_t group_;
  GroupBody body_;
  std::vector<int32_t> members_, live_;
  struct Hash {
    size_t operator()(Value v) const { return static_cast<size_t>(v.node) * 8 + v.index; }
  };
  std::unordered_map<Value, Value, Hash> now_;
  std::unordered_map<int32_t, Value> seen_as_;
  std::unordered_set<int32_t> several_;
};

/// Puts launches in an order that respects values and cells. A launch runs at its place in the program, or earlier if
/// an earlier launch needs it.
class LaunchBuilder {
 public:
  LaunchBuilder(const Partition& p, const std::vector<GroupBody>& bodies)
      : p_(p), g_(p.graph()), old_(g_.graph()), bodies_(bodies), rewriter_(old_), made_(p.size(), -1) {}

  Ref<Graph> run(std::vector<int32_t>* made) {
    for (int32_t id = 0; id < old_.size(); ++id)
      if (is_argument(old_.node(id))) rewriter_.copy(id);
    std::vector<std::pair<int32_t, int32_t>> order;
    for (int32_t i = 0; i < p_.size(); ++i) {
      const Group& x = p_.group(i);
      if (!x.gone && !bodies_[i].nodes.empty()) order.push_back({x.product >= 0 ? x.product : x.last, i});
    }
    std::sort(order.begin(), order.end());
    for (const auto& [at, i] : order) emit(i);
    for (Value v : old_.outputs) add_inputs(v);
    for (const CellWrite& w : old_.writes) add_inputs(w.value);
    rewriter_.graph().stage = "fused";
    if (made) *made = made_;
    return rewriter_.finish();
  }

 private:
  void emit(int32_t root) {
    stack_.push_back(root);
    while (!stack_.empty()) {
      const int32_t i = stack_.back();
      if (made_[i] >= 0) {
        stack_.pop_back();
        continue;
      }
      const size_t depth = stack_.size();
      auto want = [&](int32_t node) {
        const int32_t y = p_.of(node);
        if (y >= 0 && y != i && made_[y] < 0 && !bodies_[y].nodes.empty()) stack_.push_back(y);
      };
      const GroupBody& b = bodies_[i];
      if (b.graph) {
        for (Value v : b.inputs) want(g_.root(v).node);
      } else {
        for (const Read& r : g_.reads(b.nodes[0])) want(r.value.node);
      }
      for (int32_t id : b.nodes)
        for (int32_t before : g_.before(id)) want(before);
      WEFT_BUG_IF(stack_.size() > static_cast<size_t>(2 * old_.size() + 64), "fuse: the groups form a cycle");
      if (stack_.size() > depth) continue;
      stack_.pop_back();
      launch(i);
    }
  }

  void launch(int32_t i) {
    const GroupBody& b = bodies_[i];
    if (!b.graph) {
      for (Value v : old_.node(b.nodes[0]).inputs) add_inputs(v);
      made_[i] = rewriter_.copy(b.nodes[0]);
      return;
    }
    const Group& x = p_.group(i);
    const Node& main = old_.node(x.product >= 0 ? x.product : b.nodes.back());
    Node n;
    n.op = &loop_ir::fused_op;
    n.line = main.line;
    n.scope = main.scope;
    n.no_grad = main.no_grad;
    n.attrs = Attrs{{"body", b.graph}};
    for (Value v : b.inputs) {
      add_inputs(v);
      n.inputs.push_back(rewriter_(v));
    }
    for (Value v : b.outputs) n.outputs.push_back(old_.type(v));
    made_[i] = rewriter_.graph().add(std::move(n));
    for (int32_t k = 0; k < static_cast<int32_t>(b.outputs.size()); ++k) rewriter_.map(b.outputs[k], {made_[i], k});
  }

  /// Adds the sources, constants and views outside all groups that v needs, just before their first reader.
  void add_inputs(Value v) {
    std::vector<int32_t> open{v.node};
    while (!open.empty()) {
      const int32_t id = open.back();
      if (rewriter_.has({id, 0}) || g_.is_unit(id)) {
        open.pop_back();
        continue;
      }
      bool ready = true;
      for (Value u : old_.node(id).inputs)
        if (!rewriter_.has(u)) {
          WEFT_BUG_IF(g_.is_unit(u.node), "fuse: %", u.node, " (", old_.node(u).op->name, ") is needed by %", id,
                      " but no group computes it");
          open.push_back(u.node);
          ready = false;
        }
      if (!ready) continue;
      open.pop_back();
      rewriter_.copy(id);
    }
  }

  const Partition& p_;
  const FusionGraph& g_;
  const Graph& old_;
  const std::vector<GroupBody>& bodies_;
  Rewriter rewriter_;
  std::vector<int32_t> made_, stack_;
};

}  // namespace

GroupBody make_body(const Partition& p, const Flow& flow, int32_t i) { return BodyMaker(p, flow, i).run(); }

Ref<Graph> build_fused(const Partition& p, const std::vector<GroupBody>& bodies, std::vector<int32_t>* made) {
  return LaunchBuilder(p, bodies).run(made);
}

}  // namespace weft::fusion
