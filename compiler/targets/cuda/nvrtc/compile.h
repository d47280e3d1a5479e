// Kernels compiled by NVRTC to cubins: found in this process, in the cache on disk, or compiled, several at once.
// A cubin is known by its content: text, words, architecture, options and NVRTC's version. Products and sums stay apart
// (--fmad=false) as in the CPU's kernels, so that both have the same bits, for which a tanh takes 16 registers in place
// of 17; a kernel that wants a fused one says fma, and tensor cores are what they are.
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

/// Machine code of one kernel and what it takes.
struct Cubin {
  std::string bytes;  // ELF, as cuModuleLoadData takes it
  Usage usage;
  std::string log;  // of the compiler, warnings and ptxas's figures
};
using CubinPtr = std::shared_ptr<const Cubin>;

struct CompileOptions {
  std::optional<std::string> words;  // text that stands before each kernel; none: the device words of its level
  bool fmad = false;                 // let the compiler fuse a*b+c
  bool line_info = false;            // for sanitizers and profilers
  bool check_limits = true;
  std::string cache;  // folder of the cache, "off", or empty for jit::default_cache()
  int threads = 0;    // 0: one per core
};

struct Compiled {
  std::vector<CubinPtr> cubins;  // one per kernel
  int64_t compiled = 0, from_memory = 0, from_disk = 0;
  int64_t damaged = 0;  // entries found damaged on disk; compiled again
  double seconds = 0;
  std::vector<std::string> notes;  // what does not work as it could (no cache folder, full disk), a sentence each
};

/// Finds or compiles all kernels for one architecture. Throws weft::Error where NVRTC is absent (kUnavailable, with the
/// reason) or too old for the architecture (kUnimplemented); if a kernel cannot run there; if it does not compile,
/// naming it with the first error and its line of source; if it takes more than it states (registers, spills) or than a
/// block may have (shared memory), with the figures. May be called from any thread.
Compiled compile(std::span<const Kernel> kernels, Arch arch, const CompileOptions& options = {});

/// A clause that tells by how much a kernel as compiled exceeds its own limits or the device's; empty if it does not.
std::string exceeds(const Kernel& kernel, const Usage& usage, Arch arch);

/// Options that compile() hands to NVRTC: those of the words, what an architecture adds, and --minimal (since 13),
/// which leaves out textures and the like: 26 ms of CPU time became 22 for a small kernel, 42 with the words became 38.
/// A precompiled header of the words would save 4 more of these, for a file that processes share: not used.
std::vector<std::string> nvrtc_options(Arch arch, const CompileOptions& options);

namespace internal {
/// Forgets what this process has compiled, for tests of the cache on disk.
void forget_compiled();
}  // namespace internal

}  // namespace weft::cuda
