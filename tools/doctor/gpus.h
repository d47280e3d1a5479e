// Finds the machine's GPUs and the libraries that Weft uses for them.
#pragma once
#include "tools/doctor/facts.h"

namespace weft::tools {

/// Adds the NVIDIA driver, each GPU, NVRTC, cuBLASLt and NCCL to section "libraries": the version of each, or one line
/// with the reason why it cannot be used.
void add_gpus(FactList& facts);

}  // namespace weft::tools
