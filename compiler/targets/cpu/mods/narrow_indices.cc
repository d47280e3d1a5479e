#include "compiler/targets/cpu/mods/narrow_indices.h"

#include <algorithm>
#include <vector>

#include "compiler/passes/new_node.h"
#include "ops/core/core.h"

namespace weft::internal {
namespace {

using kernels::Pw;

class Narrower {
 public:
  Narrower(const Graph& g, std::span<const MaskRange> inputs)
      : g_(g), values_(static_cast<size_t>(g.size())), out_(make_ref<Graph>()) {
    for (size_t i = 0; i < g.inputs.size(); ++i) {
      const Value v = g.inputs[i];
      NarrowedValue& at = values_[static_cast<size_t>(v.node)];
      at.wide = out_->add_input(g.type(v));
      at.range = inputs[i];
      // A table may hold any values, and the gather that reads it keeps its 64-bit type.
      at.fits = g.type(v).dtype == kInt64 && g.type(v).shape.empty() && at.range.fits_i32();
    }
  }

  Ref<Graph> run() {
    for (int32_t id = 0; id < g_.size(); ++id)
      if (!is_argument(g_.node(id))) visit(g_.node(id), &values_[static_cast<size_t>(id)]);
    for (Value v : g_.outputs) out_->outputs.push_back(wide(values_[static_cast<size_t>(v.node)], g_.node(v)));
    return out_;
  }

 private:
  struct NarrowedValue {
    Value wide{-1, 0}, narrow{-1, 0};  // created on first use; one of them exists from the start
    MaskRange range;
    bool fits = false;  // an i64 whose values all fit in an i32
  };

  /// Whether the op gives the same result with i32 operands and an i32 result.
  static bool same_in_32_bits(const Node& n) {
    const Pw op = static_cast<Pw>(n.op->scalar);
    return n.op->scalar >= 0 && op != Pw::shift_left && op != Pw::shift_right;
  }
  NarrowedValue& operand(const Node& n, size_t i) { return values_[static_cast<size_t>(n.inputs[i].node)]; }

  Value added(const OpDef& op, std::span<const Value> in, Attrs attrs, const Node& like) {
    return add_node(*out_, op, in, std::move(attrs), like);
  }
  Value wide(NarrowedValue& at, const Node& n) {
    if (at.wide.node < 0) at.wide = added(cast_op, {{at.narrow}}, Attrs{{"dtype", kInt64}}, n);
    return at.wide;
  }
  Value narrow(NarrowedValue& at, const Node& n) {
    if (at.narrow.node < 0) at.narrow = added(cast_op, {{at.wide}}, Attrs{{"dtype", kInt32}}, n);
    return at.narrow;
  }

  void visit(const Node& n, NarrowedValue* to) {
    const DType type = n.outputs[0].dtype;
    const bool view = is_spread(n);
    bool fit = true, any = false;  // over the i64 operands
    for (size_t i = 0; i < n.inputs.size(); ++i)
      if (g_.type(n.inputs[i]).dtype == kInt64) any = true, fit &= operand(n, i).fits;
    if (type == kInt64 || type == kBool) to->range = range(n);
    const bool made = n.op->is(kFromAttrs);
    to->fits = type == kInt64 && to->range.fits_i32() && (made || ((view || same_in_32_bits(n)) && fit));
    // Comparisons and conversions to float take the narrow operands and give the same result.
    const bool takes =
        any && fit && (to->fits || (n.op->scalar >= 0 && type == kBool) || (n.op == &cast_op && is_floating(type)));
    SmallVec<Value, 4> in;
    for (size_t i = 0; i < n.inputs.size(); ++i) {
      NarrowedValue& at = operand(n, i);
      in.push_back(takes && at.fits ? narrow(at, n) : wide(at, n));
    }
    Attrs attrs = n.attrs;
    if (made && to->fits) attrs = attrs.with("dtype", kInt32);
    (to->fits ? to->narrow : to->wide) = added(*n.op, in, std::move(attrs), n);
    // A single number, such as an offset clamped to an extent, is converted once. Values computed from it use 32 bits.
    to->fits |= type == kInt64 && n.outputs[0].shape.numel() == 1 && to->range.fits_i32();
  }

  MaskRange range(const Node& n) {
    const TensorType& t = n.outputs[0];
    if (n.op == &constant_op) {
      const AttrValue* v = n.attrs.find("value");
      if (const int64_t* i = std::get_if<int64_t>(v)) return MaskRange::of(*i);
    } else if (n.op == &iota_op) {
      const AttrValue *start = n.attrs.find("start"), *step = n.attrs.find("step");
      const int64_t *a = std::get_if<int64_t>(start), *s = std::get_if<int64_t>(step);
      constexpr int64_t kMost = int64_t{1} << 30;
      if (a && s && *a >= 0 && *a < kMost && *s == 1 && t.shape[0] < kMost)
        return MaskRange::between(*a, *a + std::max<int64_t>(t.shape[0] - 1, 0));
    } else if (is_spread(n)) {
      return operand(n, 0).range;
    } else if (n.op->scalar >= 0) {
      return range_of_node(g_, n,
                           [this](Value v) -> const MaskRange& { return values_[static_cast<size_t>(v.node)].range; });
    }
    return MaskRange::any(t.dtype);
  }

  const Graph& g_;
  std::vector<NarrowedValue> values_;
  Ref<Graph> out_;
};

}  // namespace

Ref<Graph> narrow_indices(const Graph& g, std::span<const MaskRange> inputs) { return Narrower(g, inputs).run(); }

}  // namespace weft::internal
