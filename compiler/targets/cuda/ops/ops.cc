#include "compiler/targets/cuda/ops/ops.h"

#include "compiler/targets/cuda/ops/families.h"
#include "ops/core/conv.h"
#include "ops/core/dot.h"
#include "ops/core/linear_cross_entropy.h"
#include "ops/core/misc.h"
#include "ops/core/softmax.h"
#include "ops/core/window.h"
#include "ops/linalg/record.h"

namespace weft::cuda {

std::unique_ptr<Operation> make_op(const OpDef& op, const Attrs& attrs, std::span<const StridedView> in,
                                   std::span<const StridedView> out, const GpuProperties&, int alignment) {
  const Request r{op, attrs, in, out, alignment};
  auto made = std::make_unique<Launches>(op.name);
  if (op.is(kPointwise) && op.scalar >= 0) {
    if (!make_pointwise(r, *made)) return nullptr;
    return made;
  }
  for (auto family :
       {elementwise_makers(), view_makers(), random_makers(), reduce_makers(), scan_makers(), order_makers(),
        index_makers(), at_target_makers(), moe_makers(), exact_makers(), rounding_makers()})
    for (const MakerRow& row : family)
      if (row.op == &op) {
        if (!row.make(r, *made)) return nullptr;
        return made;
      }
  return nullptr;
}

std::string why_not(const OpDef& op) {
  if (op.is(kStructural) || op.is(kReadsTape)) return "only the graph gives it a meaning";
  if (op.is(kCollective)) return "distributed/comm runs it on all ranks together";
  if (op.is(kContraction) && (&op == &dot_op || &op == &grouped_dot_op)) return "a product: compiler/targets/cuda/gemm";
  if (std::string_view(op.name).starts_with("attention")) return "compiler/targets/cuda/attention";
  if (&op == &softmax_op || &op == &linear_cross_entropy_op || &op == &linear_cross_entropy_grad_op ||
      &op == &window_sum_op || &op == &conv_op)
    return "decompose replaces it by products and bodies of the loop IR";
  for (const OpDef* decomposition : linalg_ops())
    if (&op == decomposition) return "linear algebra runs on the CPU: move its operands with to(Device::cpu())";
  if (&op == &debug_print_op) return "the host prints it, after a copy of the value";
  return "";
}

}  // namespace weft::cuda
