#include "compiler/exec/run/count.h"

namespace weft::internal {

std::optional<Cost> count_work(const Launch& launch, const Graph& g, std::span<const StridedView> in, Target& target,
                               Device device) {
  if (!launch.op->done || !cost_of(launch, g).at_most) return {};
  SmallVec<TensorType, 4> types, results;
  for (const BufferPlace& p : launch.in) types.push_back(p.type);
  for (const BufferPlace& p : launch.out) results.push_back(p.type);
  const auto value = [&](size_t i) {
    const StridedView& v = in[i];
    if (!device.is_accelerator() && v.contiguous()) return Tensor::from_blob(v.data, v.shape, v.dtype);
    const Tensor copy = Tensor::empty({v.dtype, Device::cpu(), v.shape});
    if (v.numel() > 0) target.copy(v, device, copy.view_for_kernel(), Device::cpu());
    return copy;
  };
  return op_done(*launch.op, {g.node(launch.node).attrs, types, results, value});
}

}  // namespace weft::internal
