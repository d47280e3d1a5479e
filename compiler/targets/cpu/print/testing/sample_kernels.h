// For tests: kernels as groups of real models give them.
#pragma once
#include "compiler/targets/cpu/print/testing/kernel_case.h"

namespace weft::codegen {

loop_ir::Kernel softmax_kernel();
/// gelu * b, softmax, layer norm, RMS norm's gradient, cross entropy, AdamW, a.T + b, softmax over the outer axis,
/// log-space product, split sum.
std::vector<KernelCase> sample_cases();

}  // namespace weft::codegen
