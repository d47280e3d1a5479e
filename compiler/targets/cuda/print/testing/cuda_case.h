// For tests: lowered groups with memory filled by a seed, run by the interpreter and as CUDA text by the emulation, and
// compared bit by bit.
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
  std::vector<loop_ir::Layout> in, out;
  int seed = 1;
  bool extremes = true;  // NaN, infinities and the like among the inputs
  int misaligned = 0;    // bytes by which operands miss 16-byte alignment, rounded to their elements
  bool wide = false;     // PlanOptions::wide
  int multiprocessors = 132;
  bool in_place = false;          // results lie on inputs wherever Lowered::overwrites says (the first for each)
  std::vector<int64_t> in_below;  // by input: integers there are in [0, below), 0: any small ones
};

/// A kernel built by hand as a lowered group: each operand an input or result of its own, then its sums as results.
CudaCase case_of(const codegen::KernelCase& c);

/// The plan of a case whose kernels' symbols begin with `symbol`.
CudaPlan plan_of(const CudaCase& c, const std::string& symbol);

/// Runs all cases by both (one compilation): the first difference or fault of each that has one, by name.
std::vector<std::string> differences(const std::vector<CudaCase>& cases, uint64_t seed = 1);

/// Runs all cases by the emulation alone, `change` applied to each kernel's text: what it finds wrong with each, or an
/// empty string.
std::vector<std::string> faults(const std::vector<CudaCase>& cases,
                                const std::function<std::string(std::string)>& change);

}  // namespace weft::cuda
