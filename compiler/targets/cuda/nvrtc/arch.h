// GPU architectures as targets of compilation, and what a block may have on each.
#pragma once
#include <string>
#include <vector>

#include "compiler/targets/cuda/intrinsics/kernel.h"

namespace weft::cuda {

/// A target of compilation: compute capability times 10; `specific` adds the features of that chip alone (sm_90a).
struct Arch {
  int sm = 80;
  bool specific = false;
  /// "sm_90a"
  std::string name() const { return "sm_" + std::to_string(sm) + (specific ? "a" : ""); }
  auto operator<=>(const Arch&) const = default;
};

/// The target for a device of this compute capability: 9.0 runs sm_90a, all others the plain one.
inline Arch arch_of_device(int sm) { return {sm, sm == 90}; }

/// The targets whose kernels the tests compile.
inline std::vector<Arch> tested_archs() { return {{80, false}, {90, true}, {100, false}}; }

/// Whether a kernel can be compiled for the target.
inline bool runs_on(const Kernel& k, Arch a) { return k.only_sm90a ? a == Arch{90, true} : a.sm >= k.least_sm; }

/// Bytes of shared memory (CUDA C++ programming guide, technical specifications per compute capability).
struct SharedLimits {
  int block = 0;           // of one block, as it may opt in to
  int multiprocessor = 0;  // of all blocks on one
  int reserved = 1024;     // taken by the system from each block's share of the multiprocessor
};
SharedLimits shared_limits(int sm);

/// Registers of a multiprocessor; a block's threads take them in lots of 256 per warp.
constexpr int kRegistersOfMultiprocessor = 65536;

}  // namespace weft::cuda
