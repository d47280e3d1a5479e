// Prints a loop IR kernel as C++ text for the CPU. The table of the target (target.h) defines how each construct is
// spelled: with vectors, or one element at a time. CUDA has its own printer (compiler/targets/cuda/print). The text
// without notes does not contain operand names, so equal kernels have equal texts; the kernel cache uses it as the key.
#pragma once
#include <string>

#include "compiler/loop_ir/loop_ir.h"
#include "compiler/targets/cpu/print/target.h"

namespace weft::codegen {

struct PrintOptions {
  std::string symbol = "kernel";  // extern "C" name
  bool notes = false;             // adds operand names and the user's ops and lines as comments
};

/// A function with the signature of loop_ir::KernelFunction. prelude(target) must precede it. The kernel must pass
/// verify().
std::string print(const loop_ir::Kernel& kernel, const PrintTarget& target, const PrintOptions& options = {});

}  // namespace weft::codegen
