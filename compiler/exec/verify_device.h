// Verified steps on a GPU: each launch's first results against its ops run one by one on the CPU, from the very operands
// it had. The same bits where a kernel of ours orders sums as the CPU does; products, whose sums a library orders as it
// likes, within the bounds of error_bounds.h; attention and linear + cross-entropy are not compared.
#pragma once
#include <memory>

#include "compiler/exec/executable.h"

namespace weft::internal {

/// `tf32`: operands of f32 products were rounded to 11 bits. `like_eager`: 16-bit chains round as the CPU does.
std::unique_ptr<DeviceCheck> make_device_check(bool like_eager, bool tf32);

}  // namespace weft::internal
