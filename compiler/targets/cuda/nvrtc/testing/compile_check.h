// For tests: a kernel compiles on every architecture it is selected for and stays within its limits there. Where NVRTC
// is absent the test is skipped with the reason.
#pragma once
#include <gtest/gtest.h>

#include <span>
#include <string>
#include <vector>

#include "compiler/targets/cuda/nvrtc/compile.h"
#include "compiler/targets/cuda/nvrtc/library.h"

namespace weft::cuda {

/// The first thing wrong with `kernels` on `archs`, with its figures; empty if nothing is. Each kernel is compiled for
/// those of the architectures that it runs on; there must be one. A warpgroup's products that wait for each other are a
/// fault too. Adds what each takes to `table`, a line per kernel.
std::string compile_faults(std::span<const Kernel> kernels, const CompileOptions& options = {},
                           const std::vector<Arch>& archs = tested_archs(), std::string* table = nullptr);

}  // namespace weft::cuda

/// Skips the test where NVRTC is absent; else expects that the kernels compile within their limits. `kernels` is a
/// container of Kernel; further arguments as those of compile_faults.
#define WEFT_EXPECT_COMPILES(kernels, ...)                                                             \
  do {                                                                                                 \
    if (!::weft::cuda::nvrtc().unavailable.empty()) GTEST_SKIP() << ::weft::cuda::nvrtc().unavailable; \
    EXPECT_EQ(::weft::cuda::compile_faults(kernels __VA_OPT__(, ) __VA_ARGS__), "");                   \
  } while (0)
