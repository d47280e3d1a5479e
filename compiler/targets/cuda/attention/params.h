// params.inc for the host.
#pragma once
#include <cstdint>

namespace weft::cuda {
#include "compiler/targets/cuda/attention/params.inc"
}  // namespace weft::cuda
