#include "ops/core/functions/may_throw.h"

#include <variant>

#include "framework/ir/op_def.h"
#include "ops/core/functions/loop.h"
#include "ops/kernels/kernels.h"

namespace weft::internal {
namespace {

bool divides_integers(const Node& n) {
  const auto pw = static_cast<kernels::Pw>(n.op->scalar);
  return n.op->scalar >= 0 && (pw == kernels::Pw::floor_divide || pw == kernels::Pw::remainder) &&
         !is_floating(n.outputs[0].dtype);
}

}  // namespace

bool may_throw(const Node& n) {
  if (n.op->is(kCustom) || divides_integers(n)) return true;
  if (n.op->is(kMayThrow)) return !n.op->is(kAttention) || n.inputs.size() > 3;  // masks and mods read tables
  if (n.op == &loop_op && n.attrs.i("go_on", -1) >= 0) return true;
  for (const auto& [name, value] : n.attrs.entries())
    if (const Ref<Graph>* const body = std::get_if<Ref<Graph>>(&value); body && *body)
      for (int32_t id = 0; id < (*body)->size(); ++id)
        if (may_throw((*body)->node(id))) return true;
  return false;
}

}  // namespace weft::internal
