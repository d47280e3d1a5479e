// GPU architectures as compilation targets, and the limits of a block on each.
#pragma once
#include <string>

#include "compiler/targets/cuda/intrinsics/kernel.h"

namespace weft::cuda {

/// A compilation target: compute capability times 10. `specific` adds the features of that chip only (sm_90a).
struct Arch {
  int sm = 80;
  bool specific = false;
  /// "sm_90a"
  std::string name() const { return "sm_" + std::to_string(sm) + (specific ? "a" : ""); }
  auto operator<=>(const Arch&) const = default;
};

/// The target for a device of this compute capability: sm_90a for 9.0, the generic target for all others.
inline Arch arch_of_device(int sm) { return {sm, sm == 90}; }

/// Whether a kernel can be compiled for the target.
inline bool runs_on(const Kernel& k, Arch a) { return k.only_sm90a ? a == Arch{90, true} : a.sm >= k.least_sm; }

/// Bytes of shared memory (CUDA C++ programming guide, technical specifications per compute capability).
struct SharedLimits {
  int block = 0;           // per block, with opt-in
  int multiprocessor = 0;  // limit for all blocks on one multiprocessor
  int reserved = 1024;     // reserved by the system from each block's share of the multiprocessor
};
SharedLimits shared_limits(int sm);

/// Registers per multiprocessor; each warp of a block allocates them in units of 256.
constexpr int kRegistersOfMultiprocessor = 65536;

}  // namespace weft::cuda
