// Lists that composites compute on the host, as tensors.
#pragma once
#include <span>

#include "ops/core/creation.h"

namespace weft::internal {

/// The n numbers that `fill` writes, 1-d, on `device`. A list that does not fit the memory is the allocator's error,
/// as of any tensor.
template <class T, class F>
Tensor host_list(int64_t n, Device device, const F& fill) {
  const Tensor t = Tensor::empty({.dtype = DTypeOf<T>::value, .shape = {n}});
  fill(std::span<T>(static_cast<T*>(t.get().storage->data()), static_cast<size_t>(n)));
  return device == Device::cpu() ? t : t.to(device);
}

}  // namespace weft::internal
