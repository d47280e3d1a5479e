// For tests: a kernel compiles on every architecture for which it is selected and stays within its limits there. If
// NVRTC is absent, the test is skipped with the reason.
#pragma once
#include <gtest/gtest.h>

#include <span>
#include <string>
#include <vector>

#include "compiler/targets/cuda/nvrtc/compile.h"
#include "compiler/targets/cuda/nvrtc/library.h"

namespace weft::cuda {

/// The targets for which the tests compile kernels.
inline std::vector<Arch> tested_archs() { return {{80, false}, {90, true}, {100, false}}; }

/// A clause that says by how much a compiled kernel spills more than its generator expects; empty if it does not. Only
/// a fault in tests: spills depend on NVRTC's version and on the shapes, and a few bytes cost little time.
std::string spills(const Kernel& kernel, const Usage& usage);

/// The first fault of `kernels` on `archs`, with its figures; empty if there is none. Each kernel is compiled for every
/// architecture on which it runs; there must be at least one. Serialised products of a warpgroup are a fault too. Adds
/// the usage of each kernel to `table`, one line per kernel.
std::string compile_faults(std::span<const Kernel> kernels, const NvrtcOptions& options = {},
                           const std::vector<Arch>& archs = tested_archs(), std::string* table = nullptr);

}  // namespace weft::cuda

/// Skips the test if NVRTC is absent. Otherwise expects that the kernels compile within their limits. `kernels` is a
/// container of Kernel; further arguments go to compile_faults.
#define WEFT_EXPECT_COMPILES(kernels, ...)                                                             \
  do {                                                                                                 \
    if (!::weft::cuda::nvrtc().unavailable.empty()) GTEST_SKIP() << ::weft::cuda::nvrtc().unavailable; \
    EXPECT_EQ(::weft::cuda::compile_faults(kernels __VA_OPT__(, ) __VA_ARGS__), "");                   \
  } while (0)
