#include "compiler/passes/rearrange.h"

#include <algorithm>
#include <unordered_map>

#include "compiler/passes/new_node.h"
#include "framework/ir/op_def.h"
#include "framework/ir/rewrite.h"
#include "ops/all_ops.h"
#include "ops/core/creation.h"
#include "ops/core/indexing/index.h"
#include "ops/core/indexing/view.h"
#include "ops/core/record_parts.h"
#include "ops/core/reductions/reduce.h"

namespace weft {

using internal::number;

namespace {

const OpDef& op_named(const char* name) { return *op_table().find(name); }

class Rearranger {
 public:
  explicit Rearranger(const Graph& g) : g_(g), r_(g), uses_(g.size()) {
    for (int32_t id = 0; id < g.size(); ++id) {
      const Node& n = g.node(id);
      if (n.op->is(kReadsTape)) pending_ = true;
      for (Value v : n.inputs) ++uses_[v.node];
      if (n.op == &sort_op && n.attrs.i("dim") == 0 && n.outputs[1].shape.size() == 1)
        argsort_of_.emplace(key(n.inputs[0]), Value{id, 1});
    }
    for (Value v : g.outputs) ++uses_[v.node];
    for (const CellWrite& w : g.writes) ++uses_[w.value.node];
  }

  Ref<Graph> run() {
    if (pending_) return nullptr;
    bool changed = false;
    for (int32_t id = 0; id < g_.size(); ++id) {
      const Node& n = g_.node(id);
      from_ = &n;
      Value v;
      if (n.op == &add_) v = joined_pads(id);
      if (n.op == &index_select_op) v = select_of_range(n);
      if (n.op == &index_add_) v = add_of_order(n);
      if (n.op == &scatter_add_op) v = scatter_of_one(n);
      if (n.op == &gather_op) gathers_.emplace(key(n.inputs[1]), id);
      if (v.valid()) {
        r_.map({id, 0}, v);
        changed = true;
      } else {
        r_.copy(id);
      }
    }
    return changed ? r_.finish() : nullptr;
  }

 private:
  static uint64_t key(Value v) { return static_cast<uint64_t>(v.node) << 8 | static_cast<uint64_t>(v.index); }

  Value emit(const OpDef& op, std::span<const Value> in, Attrs attrs) {
    return add_node(r_.graph(), op, in, std::move(attrs), *from_);
  }
  Value emit(const OpDef& op, std::initializer_list<Value> in, Attrs attrs = {}) {
    return emit(op, std::span<const Value>(in.begin(), in.size()), std::move(attrs));
  }

  /// A 0-d zero of this dtype.
  Value zero(const TensorType& type) {
    AttrValue value = is_floating(type.dtype) ? AttrValue(0.0) : AttrValue(int64_t{0});
    return emit(constant_op, {}, internal::with_device({{"value", value}, {"dtype", type.dtype}}, type.device));
  }
  Value spread(Value v, const Shape& shape) {
    return r_.graph().type(v).shape == shape ? v : emit(broadcast_op, {v}, {{"shape", shape}});
  }

  bool is_zeros(Value v) const {
    const Node* const n = constant_behind(g_, v);
    return n && number(n->attrs, "value") == 0;
  }
  /// Whether v is start, start + 1, ...
  bool is_range(Value v, int64_t* start) const {
    const Node& n = g_.node(v);
    if (n.op != &iota_op || number(n.attrs, "step") != 1 || number(n.attrs, "start") < 0) return false;
    if (number(n.attrs, "start") > 9e15) return false;  // not exact
    *start = static_cast<int64_t>(number(n.attrs, "start"));
    return true;
  }

  // ---- sums of padded pieces ----

  struct PaddedPiece {
    int64_t begin, end;
    Value x;
  };

  /// The operands of a tree of adds whose inner nodes have no other reader.
  void leaves(int32_t id, std::vector<Value>& out) const {
    for (Value v : g_.node(id).inputs) {
      if (g_.node(v).op == &add_ && uses_[v.node] == 1) {
        leaves(v.node, out);
      } else {
        out.push_back(v);
      }
    }
  }

  /// The only dim that a zero pad extends, or -1.
  int padded_dim(const Node& n) const {
    if (n.op != &pad_op || number(n.attrs, "value") != 0) return -1;
    int dim = -1;
    for (const char* side : {"lo", "hi", "interior"}) {
      if (!n.attrs.has(side)) continue;
      const Shape& s = n.attrs.ints(side);
      for (int d = 0; d < s.size(); ++d) {
        if (s[d] == 0) continue;
        if (s[d] < 0 || side[0] == 'i' || (dim >= 0 && dim != d)) return -1;
        dim = d;
      }
    }
    return dim;
  }

  Value joined_pads(int32_t id) {
    const TensorType& type = g_.node(id).outputs[0];
    std::vector<Value> parts;
    leaves(id, parts);
    int dim = -1;
    std::vector<PaddedPiece> pieces;
    for (Value v : parts) {
      const Node& p = g_.node(v);
      const int d = padded_dim(p);
      if (d < 0 || (dim >= 0 && d != dim) || !(p.outputs[0] == type)) return {};
      dim = d;
      const int64_t begin = p.attrs.ints("lo")[d];
      pieces.push_back({begin, begin + g_.type(p.inputs[0]).shape[d], r_(p.inputs[0])});
    }
    std::sort(pieces.begin(), pieces.end(),
              [](const PaddedPiece& a, const PaddedPiece& b) { return a.begin < b.begin; });
    std::vector<Value> joined;
    int64_t at = 0;
    auto fill_to = [&](int64_t end) {
      if (end == at) return;
      Shape shape = type.shape;
      shape[dim] = end - at;
      joined.push_back(spread(zero(type), shape));
    };
    for (size_t i = 0; i < pieces.size(); ++i) {
      if (pieces[i].begin < (i ? pieces[i - 1].end : 0)) return {};  // they overlap
    }
    for (const PaddedPiece& p : pieces) {
      fill_to(p.begin);
      joined.push_back(p.x);
      at = p.end;
    }
    fill_to(type.shape[dim]);
    return emit(concat_op, joined, {{"dim", int64_t{dim}}});
  }

  // ---- known indices ----

  Value select_of_range(const Node& n) {
    int64_t start = 0;
    if (!is_range(n.inputs[1], &start)) return {};
    const Shape& shape = g_.type(n.inputs[0]).shape;
    const int dim = static_cast<int>(n.attrs.i("dim"));
    const int64_t count = n.outputs[0].shape[dim];
    if (start + count > shape[dim]) return {};  // it throws when it runs
    if (count == shape[dim]) return r_(n.inputs[0]);
    Shape begin, end, step;
    for (int d = 0; d < shape.size(); ++d) {
      begin.push_back(d == dim ? start : 0);
      end.push_back(d == dim ? start + count : shape[d]);
      step.push_back(1);
    }
    return emit(slice_op, {r_(n.inputs[0])}, {{"begin", begin}, {"end", end}, {"step", step}});
  }

  Value add_of_order(const Node& n) {
    if (!is_zeros(n.inputs[0])) return {};
    const Shape& shape = n.outputs[0].shape;
    const Value index = n.inputs[1];
    const int64_t count = g_.type(index).shape[0];
    int64_t start = 0;
    if (is_range(index, &start)) {
      if (start + count > shape[0]) return {};
      if (count == shape[0]) return r_(n.inputs[2]);
      Shape lo, hi;
      for (int d = 0; d < shape.size(); ++d) {
        lo.push_back(d == 0 ? start : 0);
        hi.push_back(d == 0 ? shape[0] - start - count : 0);
      }
      return emit(pad_op, {r_(n.inputs[2])}, {{"lo", lo}, {"hi", hi}, {"value", 0.0}});
    }
    if (count == 2 * shape[0]) return sums_of_pairs(n);
    if (count != shape[0]) return {};
    const Value inverse = inverse_of(index);
    if (!inverse.valid()) return {};
    return emit(index_select_op, {r_(n.inputs[2]), r_(inverse)}, {{"dim", int64_t{0}}});
  }

  /// Rows order[i] / 2 for a permutation `order`: each row gets two addends, and the order of two does not matter.
  Value sums_of_pairs(const Node& n) {
    const Node& half = g_.node(n.inputs[1]);
    if (half.op != &floor_divide_ || !is_floating(n.outputs[0].dtype)) return {};
    const Node* const by = constant_behind(g_, half.inputs[1]);
    if (!by || number(by->attrs, "value") != 2) return {};
    const Value inverse = inverse_of(half.inputs[0]);
    if (!inverse.valid()) return {};
    Shape pairs = n.outputs[0].shape;
    pairs.insert(1, 2);
    const Value rows = emit(index_select_op, {r_(n.inputs[2]), r_(inverse)}, {{"dim", int64_t{0}}});
    return emit(reduce_sum_op, {emit(reshape_op, {rows}, {{"shape", pairs}})}, {{"dims", Shape{1}}});
  }

  /// The permutation that inverts this one, if both are computed by now.
  Value inverse_of(Value v) const {
    const Node& n = g_.node(v);
    if (n.op != &sort_op || v.index != 1 || g_.type(v).shape.size() != 1) return {};
    const Node& of = g_.node(n.inputs[0]);
    if (of.op == &sort_op && n.inputs[0].index == 1 && !n.attrs.b("descending")) return n.inputs[0];
    auto it = argsort_of_.find(key(v));
    if (it == argsort_of_.end() || !r_.has(it->second) || g_.node(it->second).attrs.b("descending")) return {};
    return it->second;
  }

  Value scatter_of_one(const Node& n) {
    const int dim = static_cast<int>(n.attrs.i("dim"));
    const Shape &shape = n.outputs[0].shape, &src = g_.type(n.inputs[2]).shape;
    if (!is_zeros(n.inputs[0]) || src[dim] != 1) return {};
    for (int d = 0; d < shape.size(); ++d)
      if (d != dim && src[d] != shape[d]) return {};
    bool checked = false;
    auto [begin, end] = gathers_.equal_range(key(n.inputs[1]));
    for (auto it = begin; it != end; ++it) {
      const Node& gather = g_.node(it->second);
      checked |= gather.attrs.i("dim") == dim && g_.type(gather.inputs[0]).shape[dim] == shape[dim];
    }
    if (!checked) return {};
    const TensorType& index = g_.type(n.inputs[1]);
    const Attrs iota = internal::with_device(
        {{"size", shape[dim]}, {"dtype", index.dtype}, {"start", int64_t{0}}, {"step", int64_t{1}}}, index.device);
    Shape row;
    for (int d = 0; d < shape.size(); ++d) row.push_back(d == dim ? shape[d] : 1);
    const Value classes = spread(emit(reshape_op, {emit(iota_op, {}, iota)}, {{"shape", row}}), shape);
    const Value hit = emit(op_named("eq"), {classes, spread(r_(n.inputs[1]), shape)});
    return emit(op_named("where"), {hit, spread(r_(n.inputs[2]), shape), zero(n.outputs[0])});
  }

  const Graph& g_;
  Rewriter r_;
  std::vector<int32_t> uses_;
  std::unordered_map<uint64_t, Value> argsort_of_;      // sorted value -> its order
  std::unordered_multimap<uint64_t, int32_t> gathers_;  // index -> the gathers that use it so far
  const OpDef& add_ = op_named("add");
  const OpDef& index_add_ = index_add_op;
  const OpDef& floor_divide_ = op_named("floor_divide");
  const Node* from_ = nullptr;
  bool pending_ = false;
};

}  // namespace

Ref<Graph> rearrange(const Graph& g) { return Rearranger(g).run(); }

}  // namespace weft
