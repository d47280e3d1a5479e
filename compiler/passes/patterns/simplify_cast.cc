// Rows over cast.
#include "compiler/passes/patterns/rewrite_rule.h"
#include "ops/core/indexing/index.h"
#include "ops/core/pointwise.h"

namespace weft {
namespace {

Value same_dtype(Match& m) { return m.type(m['x']).dtype == m.node(0).outputs[0].dtype ? m['x'] : Value(); }

/// Whether `b` can represent every value of `a`.
bool lossless(DType a, DType b) {
  if (a == b || a == kBool) return true;
  switch (a) {
    case kUInt8:
      return b != kBool && itemsize(b) > 1;
    case kInt16:
      return b == kInt32 || b == kInt64 || b == kFloat32 || b == kFloat64;
    case kInt8:
      return b != kBool && itemsize(b) > 1;
    case kInt32:
      return b == kInt64 || b == kFloat64;
    case kFloat16:
    case kBFloat16:
      return b == kFloat32 || b == kFloat64;
    case kFloat32:
      return b == kFloat64;
    default:
      return false;
  }
}

/// Removes a cast through a dtype that holds every value of x. Hardware converts floats outside an integer's range by
/// rules that depend on the width of the source, so such casts stay.
Value skip_detour(Match& m) {
  DType from = m.type(m['x']).dtype, via = m.node(1).outputs[0].dtype, to = m.node(0).outputs[0].dtype;
  if (!lossless(from, via) || (is_floating(from) && is_integral(to))) return {};
  return m.emit(cast_op, {m['x']}, {{"dtype", to}});
}

/// Casts only the elements that are selected, so that no tensor of all cast elements is stored. A loss selects the
/// scores of the targets: one of 50,000 in each row.
Value select_first(Match& m) {
  const Node& select = m.node(0);
  if (select.outputs[0].shape.numel() >= m.type(m['x']).shape.numel()) return {};
  const Value selected = m.emit(*select.op, {m['x'], m['y']}, select.attrs);
  return m.emit(cast_op, {selected}, {{"dtype", select.outputs[0].dtype}});
}

constexpr RewriteRule kRules[] = {
    {"cast(x)", "x of the same dtype", Only::kAny, same_dtype},
    {"cast(cast(x))", "cast(x), the inner cast loses nothing", Only::kAny, skip_detour},
    {"gather(cast(x), y)", "cast(gather(x, y)), where y selects fewer elements than x has", Only::kAny, select_first},
    {"index_select(cast(x), y)", "cast(index_select(x, y)), likewise", Only::kAny, select_first},
};

}  // namespace

std::span<const RewriteRule> cast_rules() { return kRules; }

}  // namespace weft
