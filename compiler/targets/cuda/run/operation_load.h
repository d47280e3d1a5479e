// The compiler of operations' kernels, which tests replace with an emulation.
#pragma once
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "compiler/targets/cuda/intrinsics/kernel.h"
#include "compiler/targets/cuda/nvrtc/arch.h"

namespace weft::cuda::internal {

/// Returns one image for each kernel, for the driver to load.
using KernelCompiler = std::function<std::vector<std::string>(std::span<const Kernel>, Arch)>;

/// Replaces NVRTC with another compiler; null restores NVRTC. For tests, while no work is running.
void set_kernel_compiler(KernelCompiler compiler);

/// The number of kernels that load() has compiled in this process.
int64_t compiled_kernels();

}  // namespace weft::cuda::internal
