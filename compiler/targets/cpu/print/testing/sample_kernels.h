// Kernels for tests, as groups of real models produce them.
#pragma once
#include "compiler/targets/cpu/print/testing/kernel_case.h"

namespace weft::codegen {

loop_ir::Kernel softmax_kernel();
/// gelu * b, softmax, layer norm, the gradient of RMS norm, cross entropy, AdamW, a.T + b, softmax over the outer axis,
/// a log-space product, a split sum.
std::vector<KernelCase> sample_cases();

}  // namespace weft::codegen
