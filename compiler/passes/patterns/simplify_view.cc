// Rows over ops that only move elements.
#include "compiler/passes/patterns/rewrite_rule.h"
#include "ops/core/indexing/view.h"

namespace weft {
namespace {

Value if_same_shape(Match& m) { return m.type(m['x']).shape == m.node(0).outputs[0].shape ? m['x'] : Value(); }

/// Only the outer op, applied to x.
Value outer_only(Match& m) { return m.emit(*m.node(0).op, {m['x']}, m.node(0).attrs); }

Value compose_permutes(Match& m) {
  const Shape &outer = m.node(0).attrs.ints("dims"), &inner = m.node(1).attrs.ints("dims");
  Shape dims = outer;
  for (int64_t& d : dims) d = inner[static_cast<int>(d)];
  return m.emit(permute_op, {m['x']}, {{"dims", dims}});
}

Value identity_permute(Match& m) {
  const Shape& dims = m.node(0).attrs.ints("dims");
  for (int i = 0; i < dims.size(); ++i)
    if (dims[i] != i) return {};
  return m['x'];
}

/// Dims of extent 1 may move freely: the other dims, and so the elements, keep their order.
Value permute_of_ones(Match& m) {
  const Shape &dims = m.node(0).attrs.ints("dims"), &shape = m.type(m['x']).shape;
  int64_t last = -1;
  for (int64_t d : dims) {
    if (shape[static_cast<int>(d)] == 1) continue;
    if (d < last) return {};
    last = d;
  }
  return m.emit(reshape_op, {m['x']}, {{"shape", m.node(0).outputs[0].shape}});
}

Value compose_slices(Match& m) {
  const Attrs &outer = m.node(0).attrs, &inner = m.node(1).attrs;
  Shape begin = inner.ints("begin"), step = inner.ints("step"), end;
  for (int i = 0; i < begin.size(); ++i) {
    int64_t count = m.node(0).outputs[0].shape[i];
    begin[i] += outer.ints("begin")[i] * step[i];
    step[i] *= outer.ints("step")[i];
    if (count == 0) begin[i] = 0;
    end.push_back(count == 0 ? 0 : begin[i] + (count - 1) * step[i] + 1);
  }
  return m.emit(slice_op, {m['x']}, {{"begin", begin}, {"end", end}, {"step", step}});
}

/// A slice of all elements, from the first on.
Value full_slice(Match& m) {
  if (!if_same_shape(m).valid()) return {};
  for (int64_t b : m.node(0).attrs.ints("begin"))
    if (b != 0) return {};
  const Shape &shape = m.type(m['x']).shape, &step = m.node(0).attrs.ints("step");
  for (int i = 0; i < shape.size(); ++i)
    if (step[i] != 1 && shape[i] > 1) return {};
  return m['x'];
}

Value empty_pad(Match& m) {
  const Attrs& a = m.node(0).attrs;
  for (const char* key : {"lo", "hi", "interior"}) {
    if (!a.has(key)) continue;
    for (int64_t n : a.ints(key))
      if (n != 0) return {};
  }
  return m['x'];
}

constexpr RewriteRule kRules[] = {
    {"reshape(x)", "x of the same shape", Only::kAny, if_same_shape},
    {"reshape(reshape(x))", "reshape(x)", Only::kAny, outer_only},
    {"permute(permute(x))", "permute(x)", Only::kAny, compose_permutes},
    {"permute(x)", "x, dims in order", Only::kAny, identity_permute},
    {"permute(x)", "reshape(x), only dims of extent 1 moved", Only::kAny, permute_of_ones},
    {"broadcast(x)", "x of the same shape", Only::kAny, if_same_shape},
    {"broadcast(broadcast(x))", "broadcast(x)", Only::kAny, outer_only},
    {"slice(slice(x))", "slice(x)", Only::kAny, compose_slices},
    {"slice(x)", "x, all of it", Only::kAny, full_slice},
    {"pad(x)", "x, nothing added", Only::kAny, empty_pad},
    {"concat(x)", "x", Only::kAny, if_same_shape},
};

}  // namespace

std::span<const RewriteRule> view_rules() { return kRules; }

}  // namespace weft
