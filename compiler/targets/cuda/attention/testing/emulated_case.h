// For tests: a case of the conformance suite through attention's CUDA kernels in the emulation, compared with attention
// in f64 over all points.
#pragma once
#include <array>
#include <string>
#include <vector>

#include "compiler/targets/cuda/attention/program.h"
#include "ops/attention/testing/conformance.h"

namespace weft::cuda {

/// Which case. Names are those of ops/attention/testing/conformance.h.
struct EmulatedCase {
  testing::AttentionSizes sizes;
  DType type = kBFloat16;
  const char* mask = "none";
  const char* score = "none";
  std::array<int64_t, 2> blocks = {0, 0};  // of a block mask; 0: the mask alone
  bool backward = false;
  bool wide = false;
  /// V holds infinity and NaN at some of the keys beyond the middle: only rows that see one of them may show it.
  bool dirty_values = false;
  uint64_t seed = 1;
  AttentionOptions options;
};

/// Runs the kernels and expects each result within its bound, and the same bits from another order of threads.
void check_emulated(const EmulatedCase& c);

/// Runs one call in the emulation: operands on the CPU, results as attention's (attention_backward's).
std::vector<Tensor> run_emulated(const Attrs& attrs, const std::vector<Tensor>& in, bool backward,
                                 const AttentionOptions& options = {}, uint64_t seed = 1);

}  // namespace weft::cuda
