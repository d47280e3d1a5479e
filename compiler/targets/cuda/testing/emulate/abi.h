// abi.inc for the emulation's own code.
#pragma once

namespace weft::cuda::abi {
#include "compiler/targets/cuda/testing/emulate/abi.inc"
}  // namespace weft::cuda::abi
