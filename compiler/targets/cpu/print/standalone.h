// A kernel as a program of its own: `g++ -O2 -march=native -w file.cc && ./a.out` runs the vector text and the scalar
// text on the same memory and prints "equal" (exit 0) or the first difference (exit 1).
#pragma once
#include <string>
#include <vector>

#include "compiler/targets/cpu/print/print.h"

namespace weft::codegen {

/// What a kernel is launched with, beside memory.
struct Launch {
  std::vector<int64_t> extents;               // by axis
  std::vector<std::vector<int64_t>> strides;  // by operand and axis, elements
  std::vector<double> params;
  std::vector<int64_t> index_strides = {};  // by operand, of indexed ones
  std::vector<int64_t> index_extents = {};  // by operand: their indexed dim
};

/// The program's text. Inputs come from a fixed generator; with a file as its argument, from there: each operand's
/// elements from position 0 of all axes to the last, one operand after another.
std::string print_standalone(const loop_ir::Kernel& kernel, const Launch& launch, bool notes = true);

}  // namespace weft::codegen
