// abi.inc for the emulation's own code.
#pragma once

namespace weft::cuda::abi {
#include "compiler/cuda/emulate/abi.inc"
}  // namespace weft::cuda::abi
