// For tests: lowered groups with memory filled from a seed. The interpreter runs them, the emulation runs their CUDA
// text, and the results are compared bit by bit.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "compiler/targets/cpu/print/testing/kernel_case.h"
#include "compiler/targets/cuda/print/plan.h"

namespace weft::cuda {

struct CudaCase {
  std::string name;
  loop_ir::Lowered low;
  std::vector<loop_ir::ValueLayout> in, out;
  int seed = 1;
  bool extremes = true;      // inputs include NaN, infinities and other extremes
  int misaligned = 0;        // offset of operands from 16-byte alignment, rounded to their element size
  bool wide = false;         // KernelTextOptions::wide
  bool approximate = false;  // KernelTextOptions::approximate: no longer the interpreter's bits
  int multiprocessors = 132;
  bool in_place = false;          // results overwrite inputs as Lowered::overwrites allows (the first input for each)
  std::vector<int64_t> in_below;  // input -> its integers are in [0, below); 0: any small integers
};

/// A kernel built by hand, as a lowered group: each operand is a separate input or result, then its sums are results.
CudaCase case_of(const codegen::KernelCase& c);

/// The plan of a case. The symbols of its kernels start with `symbol`.
CudaLaunches plan_of(const CudaCase& c, const std::string& symbol);

/// Runs all cases with both (one compilation). Returns the first difference or fault of each case that has one, by
/// name.
std::vector<std::string> differences(const std::vector<CudaCase>& cases, uint64_t seed = 1);

/// Runs all cases with the emulation only, after applying `change` to the text of each kernel. Returns the faults that
/// it finds in each, or an empty string.
std::vector<std::string> faults(const std::vector<CudaCase>& cases,
                                const std::function<std::string(std::string)>& change);

}  // namespace weft::cuda
