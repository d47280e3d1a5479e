// For tests: runs a case of the conformance suite through attention's CUDA kernels in the emulation and compares it
// with attention in f64 over all points.
#pragma once
#include <array>
#include <string>
#include <vector>

#include "compiler/targets/cuda/attention/program.h"
#include "ops/attention/testing/conformance.h"

namespace weft::cuda {

/// The case. `mask` and `score` are names in ops/attention/testing/conformance.h.
struct EmulatedCase {
  testing::AttentionSizes sizes;
  DType type = kBFloat16;
  const char* mask = "none";
  const char* score = "none";
  std::array<int64_t, 2> blocks = {0, 0};  // block sizes of a block mask; 0: the mask without blocks
  bool backward = false;
  bool wide = false;
  int64_t fixed_tables = 0;  // fixed tables of backward
  /// V holds infinity and NaN at some keys in its second half. Only rows that see one of these keys may be affected.
  bool dirty_values = false;
  uint64_t seed = 1;
  AttentionKernelOptions options;
};

/// Runs the kernels. Expects each result within its bound, and the same bits for another order of threads.
void check_emulated(const EmulatedCase& c);

/// Runs one call in the emulation. Operands are on the CPU. Returns the results of attention (or attention_backward).
std::vector<Tensor> run_emulated(const Attrs& attrs, const std::vector<Tensor>& in, bool backward,
                                 const AttentionKernelOptions& options = {}, uint64_t seed = 1);

}  // namespace weft::cuda
