// Lists the GPUs of the machine and the libraries that Weft drives them with.
#pragma once
#include "tools/facts.h"

namespace weft::tools {

/// Adds to section "libraries": the NVIDIA driver and each GPU, NVRTC, cuBLASLt, NCCL: their versions, or the one-line
/// reason they cannot be used.
void add_gpus(Facts& facts);

}  // namespace weft::tools
