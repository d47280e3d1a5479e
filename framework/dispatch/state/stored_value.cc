#include "framework/dispatch/state/stored_value.h"

namespace weft {

Tensor StoredValue::gather(const Cell& cell) {
  const Tensor whole = Tensor::empty({cell.type.dtype, Device::cpu(), cell.type.shape});
  read(cell, TensorPart::all(cell.type.shape), whole.view_for_kernel().data);
  return whole.to(cell.type.device);
}

}  // namespace weft
