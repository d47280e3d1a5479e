// aot_export: writes a compiled step as a C++ file and a header, for programs that contain no compiler. The class that
// it writes, an AotStep (step.h), trains and infers with the same bits as the original step. It links
// //compiler/aot:step and the op library, but no pass, no code generator, and no host compiler at run time.
#pragma once
#include <source_location>
#include <string>
#include <vector>

#include "compiler/exec/compile.h"
#include "framework/base/cpu.h"

namespace weft {

struct AotOptions {
  std::string folder = ".";
  /// The folder of the header in #include lines; empty: the folder of the file.
  std::string include_folder = {};
  /// State of at most this many bytes is written into the C++ file; larger state goes to NAME.safetensors, for
  /// AotStep::load.
  int64_t inline_bytes = 64 << 10;
};

struct AotFiles {
  std::string header, source;
  std::string values;  // NAME.safetensors; empty if the values are in the source
};

namespace internal {
AotFiles aot_export(const CompiledCore& core, const std::string& name, const AotOptions& options,
                    std::source_location loc);
}

/// Writes NAME.h and NAME.cc for the plan that `step` used last (call it or prepare() it first), with the current
/// values of its cells. It replaces files that it wrote, and no others. `name`, a C++ identifier, is the name of the
/// class. Its operator() accepts the tensors of the arguments in order and returns the function's result: nothing, a
/// Tensor, or a vector of tensors. The kernels are for the instruction set of this process (WEFT_ISA).
template <class Fn>
AotFiles aot_export(const Compiled<Fn>& step, const std::string& name, const AotOptions& options = {},
                    std::source_location loc = std::source_location::current()) {
  return internal::aot_export(*step.core(), name, options, loc);
}

}  // namespace weft
