#include "compiler/passes/channels_last.h"

#include <algorithm>
#include <map>

#include "compiler/passes/new_node.h"
#include "framework/ir/rewrite.h"
#include "ops/core/indexing/view.h"
#include "ops/core/products/dot.h"
#include "ops/core/products/window.h"
#include "ops/core/products/winograd.h"
#include "ops/core/record_parts.h"
#include "ops/core/reductions/reduce.h"

namespace weft {
namespace {

bool is_identity(const Shape& order) {
  for (int i = 0; i < order.size(); ++i)
    if (order[i] != i) return false;
  return true;
}
class ChannelsLast {
 public:
  explicit ChannelsLast(const Graph& g) : g_(g), r_(g) {}

  Ref<Graph> run() {
    for (int32_t id = 0; id < g_.size(); ++id) {
      from_ = &g_.node(id);
      if (!rewritten(id, *from_)) {
        for (Value v : from_->inputs) in_order(v);
        r_.copy(id);
      }
    }
    if (!changed_) return nullptr;
    for (Value v : g_.outputs) in_order(v);
    for (const CellWrite& w : g_.writes) in_order(w.value);
    return r_.finish();
  }

 private:
  /// A value of the new graph with the dims of an old one in another order: dim i of the old value is dim order[i].
  struct PermutedValue {
    Value value;
    Shape order;
  };

  Value emit(const OpDef& op, std::initializer_list<Value> in, Attrs attrs) {
    return emit(op, std::span<const Value>(in.begin(), in.size()), std::move(attrs));
  }
  Value emit(const OpDef& op, std::span<const Value> in, Attrs attrs) {
    return add_node(r_.graph(), op, in, std::move(attrs), *from_);
  }

  const PermutedValue* moved(Value v) const {
    auto it = moved_.find(v);
    return it == moved_.end() ? nullptr : &it->second;
  }

  /// The old value in the new graph, with its own order of dims.
  Value in_order(Value v) {
    if (!r_.has(v)) {
      const PermutedValue& m = *moved(v);
      r_.map(v, emit(permute_op, {m.value}, {{"dims", m.order}}));
    }
    return r_(v);
  }

  /// The old value in the new graph, with its dims in this order.
  Value reordered(Value v, const Shape& order) {
    if (const PermutedValue* m = moved(v); m && m->order == order) return m->value;
    const Shape back = internal::inverse_order(order);
    if (const Node& n = g_.node(v); is_broadcast(n)) {
      // Broadcast to the new shape instead, if the elements keep their order.
      const Shape& from = g_.type(n.inputs[0]).shape;
      const int added = order.size() - from.size();
      Shape shape = order, to = order;
      int64_t last = -1;
      bool sorted = true;
      for (int i = 0; i < order.size(); ++i) {
        const int d = static_cast<int>(back[i]);
        to[i] = g_.type(v).shape[d];
        shape[i] = d < added ? 1 : from[d - added];
        if (shape[i] == 1) continue;
        sorted = sorted && d > last;
        last = d;
      }
      if (sorted) {
        const Value x = in_order(n.inputs[0]);
        return emit(broadcast_op, {shape == from ? x : emit(reshape_op, {x}, {{"shape", shape}})}, {{"shape", to}});
      }
    }
    return emit(permute_op, {in_order(v)}, {{"dims", back}});
  }

  void move(int32_t id, Value now, const Shape& order) {
    if (is_identity(order)) {
      r_.map({id, 0}, now);
    } else {
      moved_[{id, 0}] = {now, order};
    }
  }

  /// Whether the node is computed in another order of dims than its own.
  bool rewritten(int32_t id, const Node& n) {
    if (n.outputs.size() != 1 || n.inputs.empty()) return false;
    const PermutedValue* first = nullptr;
    for (Value v : n.inputs)
      if (!first) first = moved(v);
    if (n.op == &permute_op && !first && is_convolution(n.inputs[0])) {
      move(id, r_(n.inputs[0]), n.attrs.ints("dims"));
      return true;
    }
    if (!first || !reorder(id, n, *first)) return false;
    changed_ = true;
    return true;
  }

  /// Computes the node in the order of dims of its operand `m`, if that is possible.
  bool reorder(int32_t id, const Node& n, const PermutedValue m) {
    const Shape& order = m.order;
    if (n.op->placing != Placing::kNone) return view(id, n, m);
    if (n.op->is(kPointwise)) return pointwise(id, n, order);
    if (n.op == &pad_op) {
      Attrs attrs = n.attrs;
      for (const char* key : {"lo", "hi", "interior"})
        if (attrs.has(key)) attrs = attrs.with(key, by_order(attrs.ints(key), order));
      move(id, emit(pad_op, {m.value}, attrs), order);
      return true;
    }
    if (n.op == &concat_op) {
      SmallVec<Value, 4> in;
      for (Value v : n.inputs) in.push_back(reordered(v, order));
      const int64_t dim = order[static_cast<int>(n.attrs.i("dim"))];
      move(id, emit(concat_op, {in.data(), in.size()}, n.attrs.with("dim", dim)), order);
      return true;
    }
    if (n.op->is(kReduction) && !n.op->is(kCustom) && n.attrs.has("dims")) return reduction(id, n, m);
    return false;
  }

  bool view(int32_t id, const Node& n, const PermutedValue& m) {
    const Shape& order = m.order;
    switch (n.op->placing) {
      case Placing::kPermute: {
        Shape dims = n.attrs.ints("dims");
        for (int64_t& d : dims) d = order[static_cast<int>(d)];
        move(id, m.value, dims);
        return true;
      }
      case Placing::kSlice: {
        Attrs attrs = n.attrs;
        for (const char* key : {"begin", "end", "step"}) attrs = attrs.with(key, by_order(attrs.ints(key), order));
        move(id, emit(slice_op, {m.value}, attrs), order);
        return true;
      }
      case Placing::kBroadcast:
        if (n.outputs[0].shape.size() != order.size()) return false;
        move(id, emit(broadcast_op, {m.value}, {{"shape", by_order(n.outputs[0].shape, order)}}), order);
        return true;
      case Placing::kWindow:
        return window(id, n, m);
      case Placing::kNone:
      case Placing::kSame:
      case Placing::kReshape:
        return false;
    }
    return false;
  }

  static Shape by_order(const Shape& entries, const Shape& order) {
    Shape r = entries;
    for (int i = 0; i < entries.size(); ++i) r[static_cast<int>(order[i])] = entries[i];
    return r;
  }
  static bool ascend(const Shape& dims) { return std::is_sorted(dims.begin(), dims.end()); }

  /// Whether the value is the value of a cell, or a view of it.
  bool shows_cell(Value v) const {
    const Node* n = &g_.node(v);
    while (n->op->is(kView) && n->inputs.size() == 1 && !is_broadcast(*n)) n = &g_.node(n->inputs[0]);
    return is_cell(*n);
  }

  bool pointwise(int32_t id, const Node& n, const Shape& order) {
    for (Value v : n.inputs)
      if (shows_cell(v) && g_.type(v).shape == n.outputs[0].shape) return false;
    SmallVec<Value, 4> in;
    for (Value v : n.inputs) in.push_back(g_.type(v).shape.empty() ? in_order(v) : reordered(v, order));
    move(id, emit(*n.op, {in.data(), in.size()}, n.attrs), order);
    return true;
  }

  bool window(int32_t id, const Node& n, const PermutedValue& m) {
    Shape dims = n.attrs.ints("dims"), order = m.order;
    for (int64_t& d : dims) d = order[static_cast<int>(d)];
    if (!ascend(dims)) return false;
    while (order.size() < n.outputs[0].shape.size()) order.push_back(order.size());
    move(id, emit(window_op, {m.value}, n.attrs.with("dims", dims)), order);
    return true;
  }

  /// The reduced elements must keep their order, on which the bits of sums depend.
  bool reduction(int32_t id, const Node& n, const PermutedValue& m) {
    Shape dims = n.attrs.ints("dims"), kept, order;
    for (int i = 0; i < m.order.size(); ++i)
      if (std::find(dims.begin(), dims.end(), i) == dims.end()) kept.push_back(m.order[i]);
    for (int64_t& d : dims) d = m.order[static_cast<int>(d)];
    if (!ascend(dims)) return false;
    for (int64_t d : kept)
      order.push_back(std::count_if(kept.begin(), kept.end(), [&](int64_t other) { return other < d; }));
    move(id, emit(*n.op, {m.value}, n.attrs.with("dims", dims)), order);
    return true;
  }

  /// Whether the value is a product over windows, or computed as one.
  bool is_convolution(Value v) const {
    const Node& dot = g_.node(v);
    if (dot.op == &winograd_op) return true;
    if (dot.op != &dot_op) return false;
    for (Value operand : dot.inputs) {
      const Node* n = &g_.node(operand);
      while (is_rearranged(*n)) n = &g_.node(n->inputs[0]);
      if (n->op == &window_op) return true;
    }
    return false;
  }

  const Graph& g_;
  Rewriter r_;
  std::map<Value, PermutedValue> moved_;  // key: old value
  const Node* from_ = nullptr;
  bool changed_ = false;
};

}  // namespace

Ref<Graph> channels_last(const Graph& g) {
  bool any = false;
  for (int32_t id = 0; id < g.size(); ++id) any |= g.node(id).op == &window_op || g.node(id).op == &winograd_op;
  return any ? ChannelsLast(g).run() : nullptr;
}

}  // namespace weft
