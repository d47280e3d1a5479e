#include "compiler/exec/plan/padded_rows.h"

#include <array>
#include <set>

#include "compiler/loop_ir/fused.h"
#include "compiler/loop_ir/lower_group.h"
#include "ops/core/products/dot.h"
#include "ops/core/products/dot_product.h"

namespace weft::internal {
namespace {

using loop_ir::ValueLayout;

StridedView view_of(const TensorType& t, const Shape& strides) { return {nullptr, t.dtype, t.shape, strides}; }

class RowPadder {
 public:
  RowPadder(const Graph& g, int64_t alignment, bool tf32) : g_(g), alignment_(alignment), tf32_(tf32) {}

  std::map<Value, Shape> run() {
    find_products();
    for (const PaddedProduct& p : products_) pad_results(p);
    for (const PaddedProduct& p : products_)
      for (int i : {0, 1}) pad_operand(p, i);
    if (padded_.empty()) return {};
    pad_neighbours();
    while (drop_refused()) {
    }
    std::map<Value, Shape> strides;
    for (const auto& [v, rows] : padded_) strides[v] = rows.strides;
    return strides;
  }

 private:
  struct PaddedProduct {
    int32_t node;
    const Node* dot;        // the node, or a node of its body
    TensorType types[2];    // types of the operands
    Value operands[2];      // in the graph; invalid: the body computes it
    int64_t rows, columns;  // extents of the result, with all rows of all its matrices
  };
  struct PaddedLayout {
    int64_t columns;
    Shape strides;
  };
  /// A value in the memory of a padded one.
  struct PaddedView {
    Value owner;
    Shape strides;
  };

  void find_products() {
    for (int32_t id = 0; id < g_.size(); ++id) {
      const Node& n = g_.node(id);
      if (n.op == &dot_op) add_product(id, g_, n, [&](Value v) { return v; });
      const Graph* const body = loop_ir::group_of(n);
      if (!body) continue;
      for (int32_t k = 0; k < body->size(); ++k)
        if (body->node(k).op == &dot_op)
          add_product(id, *body, body->node(k), [&](Value v) {
            const int64_t i = argument_index(body->node(v));
            return i >= 0 ? n.inputs[static_cast<size_t>(i)] : Value();
          });
    }
  }
  template <class F>
  void add_product(int32_t id, const Graph& in, const Node& dot, F outside) {
    const TensorType &a = in.type(dot.inputs[0]), &b = in.type(dot.inputs[1]);
    if (!is_16bit(a.dtype) && !(a.dtype == kFloat32 && tf32_)) return;
    const DotProduct d(dot.attrs,
                       std::array{view_of(a, contiguous_strides(a.shape)), view_of(b, contiguous_strides(b.shape))});
    if (d.batch() * d.m() * d.n() * d.k() == 0) return;
    products_.push_back({id, &dot, {a, b}, {outside(dot.inputs[0]), outside(dot.inputs[1])}, d.batch() * d.m(), d.n()});
  }

  // ---- candidates ----

  void pad_results(const PaddedProduct& p) {
    const Node& n = g_.node(p.node);
    for (int32_t i = 0; i < static_cast<int32_t>(n.outputs.size()); ++i)
      if (n.outputs[i].shape.numel() == p.rows * p.columns) pad({p.node, i}, p.columns);
  }

  /// Pads the value that operand i is a view of, if its rows or columns do not start at such multiples yet.
  void pad_operand(const PaddedProduct& p, int i) {
    if (!p.operands[i].valid()) return;
    std::vector<Value> views;  // the operand and the views under it
    Value v = p.operands[i];
    for (; g_.node(v).op->view; v = g_.node(v).inputs[0]) views.push_back(v);
    if (padded_.count(v) > 0) return;
    const auto fits = [&](Shape strides) -> std::optional<bool> {
      TensorType type = g_.type(v);
      for (size_t k = views.size(); k-- > 0;) {
        const std::optional<Shape> shown = through_view(views[k], type, strides);
        if (!shown) return {};
        type = g_.type(views[k]), strides = *shown;
      }
      return aligned(p, i, strides);
    };
    const Shape& shape = g_.type(v).shape;
    if (fits(contiguous_strides(shape)).value_or(true)) return;
    int64_t columns = 1;
    for (int d = shape.size() - 1; d > 0; --d) {
      columns *= shape[d];
      const std::optional<Shape> strides = strides_of_rows(shape, columns, distance(v, columns));
      if (strides && fits(*strides).value_or(false) && pad(v, columns)) return;
    }
  }

  /// Whether the lines of operand i start at such multiples; none if the product must copy it.
  std::optional<bool> aligned(const PaddedProduct& p, int i, const Shape& strides) const {
    std::array<StridedView, 2> in;
    for (int k : {0, 1}) in[k] = view_of(p.types[k], k == i ? strides : contiguous_strides(p.types[k].shape));
    const DotProduct d(p.dot->attrs, in);
    if (i == 0 ? d.copies_a() : d.copies_b()) return {};
    const Shape& s = i == 0 ? d.a_strides() : d.b_strides();
    const int64_t rows = i == 0 ? d.m() : d.k(), columns = i == 0 ? d.k() : d.n();
    const int64_t line = columns > 1 && s[2] == 1 ? (rows > 1 ? s[1] : 0) : (columns > 1 ? s[2] : 0);
    const int64_t bytes = itemsize(p.types[i].dtype);
    return line * bytes % alignment_ == 0 && (d.batch() == 1 || s[0] * bytes % alignment_ == 0);
  }

  int64_t distance(Value v, int64_t columns) const {
    return padded_distance(columns, itemsize(g_.type(v).dtype), alignment_);
  }

  bool pad(Value v, int64_t columns) {
    const Shape& shape = g_.type(v).shape;
    const int64_t apart = distance(v, columns);
    if (apart == columns || shape.numel() <= columns || !may_pad(v, columns)) return false;
    const std::optional<Shape> strides = strides_of_rows(shape, columns, apart);
    if (strides) padded_.emplace(v, PaddedLayout{columns, *strides});
    return strides.has_value();
  }

  /// Whether the launch that computes v can write such rows: a product's own rows, else any rows that the launch does
  /// not sum.
  bool may_pad(Value v, int64_t columns) const {
    const Node& n = g_.node(v);
    const auto writes = [&](const Graph& g, const Node& product) {
      return loop_ir::row_elements(g, product) == columns &&
             product.outputs[0].shape.numel() == g_.type(v).shape.numel();
    };
    if (n.op == &dot_op) return writes(g_, n);
    const Graph* const group = loop_ir::group_of(n);
    if (!group) return n.op->is(kPointwise) && loop_ir::can_fuse(n);
    const Graph& body = *group;
    for (int32_t id = 0; id < body.size(); ++id)
      if (loop_ir::is_product(body.node(id)) && !writes(body, body.node(id))) return false;
    Value made = body.outputs[static_cast<size_t>(v.index)];
    while (body.node(made).op->view) made = body.node(made).inputs[0];
    return !body.node(made).op->is(kReduction);
  }

  /// Pads results that are computed from a padded value of their shape. Equal rows let a kernel keep access in vectors
  /// and compute in place.
  void pad_neighbours() {
    for (int32_t id = 0; id < g_.size(); ++id) {
      const Node& n = g_.node(id);
      for (Value v : n.inputs)
        if (const auto at = seen_.find(v); at != seen_.end()) pad_like(n, id, v, at->second);
      see(id);
    }
  }
  void pad_like(const Node& n, int32_t id, Value v, const PaddedView& seen) {
    const Shape& shape = g_.type(v).shape;
    const int64_t columns = padded_.at(seen.owner).columns;
    const std::optional<Shape> rows = strides_of_rows(shape, columns, distance(v, columns));
    if (!rows || !(*rows == seen.strides)) return;  // transposed
    for (int32_t i = 0; i < static_cast<int32_t>(n.outputs.size()); ++i)
      if (n.outputs[i].shape == shape && padded_.count({id, i}) == 0) pad({id, i}, columns);
  }

  // ---- readers ----

  std::optional<Shape> through_view(Value v, const TensorType& from, const Shape& strides) const {
    const Node& n = g_.node(v);
    Shape shown;
    int64_t offset = 0;
    if (!n.op->view(n.attrs, view_of(from, strides), n.outputs[0], &shown, &offset)) return {};
    return shown;
  }

  /// Finds which results of the node are in the memory of a padded value. Returns false if the node is a view that such
  /// strides do not allow.
  bool see(int32_t id) {
    const Node& n = g_.node(id);
    for (int32_t i = 0; i < static_cast<int32_t>(n.outputs.size()); ++i)
      if (const auto at = padded_.find({id, i}); at != padded_.end())
        seen_[at->first] = {at->first, at->second.strides};
    if (!n.op->view) return true;
    const auto from = seen_.find(n.inputs[0]);
    if (from == seen_.end()) return true;
    const std::optional<Shape> strides = through_view({id, 0}, g_.type(n.inputs[0]), from->second.strides);
    if (strides) seen_[{id, 0}] = {from->second.owner, *strides};
    return strides.has_value();
  }

  /// Drops the values that a reader cannot accept unchanged. Returns whether there were any.
  bool drop_refused() {
    seen_.clear();
    std::set<Value> refused;
    const auto refuse = [&](Value v) {
      if (const auto at = seen_.find(v); at != seen_.end()) refused.insert(at->second.owner);
    };
    for (int32_t id = 0; id < g_.size(); ++id) {
      const Node& n = g_.node(id);
      if (!see(id) || !takes_rows(n))
        for (Value v : n.inputs) refuse(v);
      if (n.op->is(kGroup) && !one_kernel(id)) {
        for (Value v : n.inputs) refuse(v);
        for (int32_t i = 0; i < static_cast<int32_t>(n.outputs.size()); ++i) refuse({id, i});
      }
    }
    for (const PaddedProduct& p : products_)
      for (int i : {0, 1})
        if (const auto at = seen_.find(p.operands[i]); at != seen_.end())
          if (!aligned(p, i, at->second.strides).has_value()) refuse(p.operands[i]);
    for (Value v : g_.outputs) refuse(v);
    for (const CellWrite& w : g_.writes) refuse(w.value);
    for (Value v : refused) padded_.erase(v);
    return !refused.empty();
  }

  static bool takes_rows(const Node& n) {
    if (n.op->is(kSameMemory) || n.op->is(kCustom)) return false;
    return n.op->is(kGroup) || n.op->is(kProduct) || n.op->view || n.op->is(kPointwise) || n.op->is(kReduction) ||
           n.op->is(kIndexing);
  }

  /// Whether a fused node stays one kernel with these layouts.
  bool one_kernel(int32_t id) const {
    const Node& n = g_.node(id);
    bool padded = false;
    const auto layout = [&](Value v) -> ValueLayout {
      const auto at = seen_.find(v);
      padded |= at != seen_.end();
      return {g_.type(v), at != seen_.end() ? at->second.strides : contiguous_strides(g_.type(v).shape)};
    };
    std::vector<ValueLayout> in, out;
    for (Value v : n.inputs) in.push_back(layout(v));
    for (int32_t i = 0; i < static_cast<int32_t>(n.outputs.size()); ++i) out.push_back(layout({id, i}));
    return !padded || loop_ir::cannot_lower(loop_ir::body_of(n), in, out).empty();
  }

  const Graph& g_;
  const int64_t alignment_;
  const bool tf32_;
  std::vector<PaddedProduct> products_;
  std::map<Value, PaddedLayout> padded_;
  std::map<Value, PaddedView> seen_;
};

}  // namespace

std::map<Value, Shape> padded_rows(const Graph& g, const TargetLimits& limits, const PrepareOptions& options) {
  if (limits.row_alignment == 1) return {};
  return RowPadder(g, limits.row_alignment, options.tf32).run();
}

}  // namespace weft::internal
