// aot_export: a compiled step as a C++ file and a header, to be built into programs that have no compiler in them. The
// class it writes, an AotStep (step.h), trains and infers with the bits of the step it came from. It links
// //compiler/aot:step and the op library; no pass, no code generator, no host compiler at run time.
#pragma once
#include <string>
#include <vector>

#include "compiler/exec/compile.h"
#include "framework/base/cpu.h"

namespace weft {

struct AotOptions {
  std::string folder = ".";
  /// Where the header will stand when it is included; empty: beside the file.
  std::string include_folder = {};
  /// State of at most so many bytes is written into the C++ file; more goes to NAME.safetensors, for AotStep::load.
  int64_t inline_bytes = 64 << 10;
};

struct AotFiles {
  std::string header, source;
  std::string values;  // NAME.safetensors; empty if the values are in the source
};

namespace internal {
AotFiles aot_export(const CompiledCore& core, const std::string& name, const AotOptions& options);
}

/// Writes NAME.h and NAME.cc for the plan that `step` used last (call it or prepare() it first), with the values that
/// its cells have now. `name`, a C++ identifier, is the class; its operator() takes the tensors of the arguments in
/// order and returns what the function did: nothing, a Tensor, or a vector of them. Kernels are for this process's
/// instruction set (WEFT_ISA).
template <class Fn>
AotFiles aot_export(const Compiled<Fn>& step, const std::string& name, const AotOptions& options = {}) {
  return internal::aot_export(*step.core(), name, options);
}

}  // namespace weft
