// A kernel of the loop IR as C++ text: one printer for all targets, which spells every word as the target's table says.
// The text without notes is the same for equal kernels, whatever names their operands had, and is what caches key.
#pragma once
#include <string>

#include "compiler/loop_ir/loop_ir.h"
#include "compiler/targets/cpu/print/target.h"

namespace weft::codegen {

struct PrintOptions {
  std::string symbol = "kernel";  // extern "C" name
  bool notes = false;             // names of operands, the user's ops and lines, as comments
};

/// One function of loop_ir::Fn's signature; it needs prelude(target) before it. The kernel must pass verify().
std::string print(const loop_ir::Kernel& kernel, const Target& target, const PrintOptions& options = {});

}  // namespace weft::codegen
