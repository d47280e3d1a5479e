// Prints a kernel as a complete program. `g++ -O2 -march=native -w file.cc && ./a.out` runs the vector text and the
// scalar text on the same memory. It prints "equal" (exit 0) or the first difference (exit 1).
#pragma once
#include <string>
#include <vector>

#include "compiler/targets/cpu/print/print.h"

namespace weft::codegen {

/// The launch arguments of a kernel, without memory.
struct StandaloneLaunch {
  std::vector<int64_t> extents;               // index: axis
  std::vector<std::vector<int64_t>> strides;  // elements; indices: operand and axis
  std::vector<double> params;
  std::vector<int64_t> index_strides = {};  // index: operand, for indexed ones
  std::vector<int64_t> index_extents = {};  // operand -> extent of its indexed dim
};

/// The text of the program. Its inputs come from a fixed generator, or from a file given as its argument: the elements
/// of one operand after another, each from position 0 of all axes to the last.
std::string print_standalone(const loop_ir::Kernel& kernel, const StandaloneLaunch& launch, bool notes = true);

}  // namespace weft::codegen
