#include "compiler/targets/cuda/ops/ops.h"

#include "compiler/targets/cuda/ops/families.h"

namespace weft::cuda {

std::unique_ptr<DeviceOperation> make_op(const OpDef& op, const Attrs& attrs, std::span<const StridedView> in,
                                         std::span<const StridedView> out, const GpuProperties&, int alignment) {
  const OperationRequest r{op, attrs, in, out, alignment};
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

}  // namespace weft::cuda
