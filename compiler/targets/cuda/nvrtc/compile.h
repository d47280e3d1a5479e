// Kernels compiled by NVRTC to cubins. A cubin is found in this process or in the cache on disk, or compiled, several
// in parallel. Its key is its content: text, intrinsics, architecture, options and NVRTC's version. Multiplications and
// additions are not fused (--fmad=false), as in the CPU's kernels, so that both have the same bits; a tanh then needs
// 16 registers instead of 17. A kernel that wants a fused operation calls fma. Tensor cores have their own rounding.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "compiler/targets/cuda/intrinsics/kernel.h"
#include "compiler/targets/cuda/nvrtc/arch.h"
#include "compiler/targets/cuda/nvrtc/ptxas_log.h"

namespace weft::cuda {

/// Machine code of one kernel and its resource usage.
struct Cubin {
  std::string bytes;  // ELF, for cuModuleLoadData
  Usage usage;
  std::string log;  // log of the compiler: warnings and ptxas's figures
};
using CubinPtr = std::shared_ptr<const Cubin>;

struct NvrtcOptions {
  std::optional<std::string> prelude;  // text before each kernel; none: the intrinsics of its level
  std::string cache;                   // folder of the cache, "off", or empty for jit::default_cache()
  int threads = 0;                     // 0: one per core
};

struct CompiledKernels {
  std::vector<CubinPtr> cubins;  // one per kernel
  int64_t compiled = 0, from_memory = 0, from_disk = 0;
  int64_t damaged = 0;  // entries that were damaged on disk; they were compiled again
  double seconds = 0;
  std::vector<std::string> notes;  // limitations (no cache folder, full disk), one sentence each
};

/// Finds or compiles all kernels for one architecture. Throws weft::Error in these cases:
/// - NVRTC is absent (kUnavailable, with the reason) or too old for the architecture (kUnimplemented);
/// - a kernel cannot run on the architecture;
/// - a kernel does not compile: names it, with the first error and its source line;
/// - a kernel uses more registers than it declares, or more shared memory than a block has: with the figures.
///
/// Any thread may call it.
CompiledKernels compile(std::span<const Kernel> kernels, Arch arch, const NvrtcOptions& options = {});

/// The CUDA C++ source of a kernel with its intrinsics: one file that a compiler accepts unchanged.
std::string source_text(const Kernel& kernel);

/// A clause with the figures by which a compiled kernel exceeds its own limits or the device's and cannot run; empty if
/// it does not.
std::string exceeds(const Kernel& kernel, const Usage& usage, Arch arch);

namespace internal {
/// Drops all cubins of this process, for tests of the cache on disk.
void forget_compiled();
}  // namespace internal

}  // namespace weft::cuda
