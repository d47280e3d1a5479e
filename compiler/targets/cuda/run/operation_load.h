// How kernels of operations become functions on a GPU, and the seam where tests put an emulation in NVRTC's place.
#pragma once
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "compiler/targets/cuda/intrinsics/kernel.h"
#include "compiler/targets/cuda/nvrtc/arch.h"

namespace weft::cuda::internal {

/// Images that the driver loads, one per kernel.
using KernelCompiler = std::function<std::vector<std::string>(std::span<const Kernel>, Arch)>;

/// Puts another compiler in NVRTC's place; null: NVRTC again. For tests, and not beside running work.
void set_kernel_compiler(KernelCompiler compiler);

/// Kernels compiled by load() so far in this process.
int64_t compiled_kernels();

}  // namespace weft::cuda::internal
