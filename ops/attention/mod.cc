#include "ops/attention/mod.h"

#include "framework/ir/op_def.h"
#include "ops/core/creation.h"
#include "ops/core/index.h"
#include "ops/core/view.h"

namespace weft {

MaskMod MaskMod::shift(int64_t dq, int64_t dkv) const {
  return [m = *this, dq, dkv](Index b, Index h, Index q, Index kv) {
    return m(b, h, dq ? Index(q + dq) : q, dkv ? Index(kv + dkv) : kv);
  };
}

MaskMod operator&(MaskMod a, MaskMod b) {
  return [a, b](Index i, Index h, Index q, Index kv) { return logical_and(a(i, h, q, kv), b(i, h, q, kv)); };
}

MaskMod operator|(MaskMod a, MaskMod b) {
  return [a, b](Index i, Index h, Index q, Index kv) { return logical_or(a(i, h, q, kv), b(i, h, q, kv)); };
}

MaskMod operator!(MaskMod a) {
  return [a](Index i, Index h, Index q, Index kv) { return logical_not(a(i, h, q, kv)); };
}

namespace internal {
namespace {

// What the kernels, the analysis and the derivative of a mod can all do.
void check_ops(const Graph& g, const char* what) {
  for (int32_t id = 0; id < g.size(); ++id) {
    const Node& n = g.node(id);
    const bool indexing = n.op == &index_select_op || n.op == &reshape_op;
    const bool scalar = n.op->is(kPointwise) && n.outputs[0].shape.empty();
    WEFT_CHECK(indexing || scalar || n.op->is(kStructural) || n.op == &constant_op, what, ": uses ", n.op->name,
               n.line.line ? " at " : "", n.line.to_string(),
               "; need ops on single values and table[index], so that it can be computed for each score in a kernel");
  }
}

}  // namespace

Body trace_mask(const MaskMod& mask) {
  const TensorType index{kInt64, Device::cpu(), {}};
  const std::vector<TensorType> types(4, index);
  Body body = capture_body(
      [&](std::span<const Tensor> in) {
        Tensor m = mask(Index(in[0]), Index(in[1]), Index(in[2]), Index(in[3]));
        WEFT_CHECK(m.defined() && m.dtype() == kBool && m.dim() == 0, "mask_mod: gave ",
                   m.defined() ? cat(m.type()) : "nothing", "; need one bool, as q >= kv is");
        return std::vector<Tensor>{m};
      },
      types);
  check_ops(*body.graph, "mask_mod");
  return body;
}

Body trace_score(const ScoreMod& mod) {
  const TensorType index{kInt64, Device::cpu(), {}};
  std::vector<TensorType> types(5, index);
  types[0].dtype = kFloat32;
  Body body = capture_body(
      [&](std::span<const Tensor> in) {
        Tensor s = mod(Score{in[0], Index(in[1]), Index(in[2]), Index(in[3]), Index(in[4])});
        WEFT_CHECK(s.defined() && is_floating(s.dtype()) && s.dim() == 0, "score_mod: gave ",
                   s.defined() ? cat(s.type()) : "nothing", "; need one floating-point value, as s.value * 2 is");
        return std::vector<Tensor>{cast(s, kFloat32)};
      },
      types);
  check_ops(*body.graph, "score_mod");
  return body;
}

}  // namespace internal
}  // namespace weft
