// The CUDA text of kernels of every kind equals testdata and compiles within its limits for every architecture.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>

#include "compiler/targets/cpu/print/testing/sample_kernels.h"
#include "compiler/targets/cuda/nvrtc/testing/compile_check.h"
#include "compiler/targets/cuda/print/plan.h"
#include "compiler/targets/cuda/print/testing/cuda_case.h"
#include "framework/base/str_cat.h"

namespace weft::cuda {
namespace {

// WEFT_UPDATE_GOLDEN=DIR writes the texts to DIR.
TEST(Print, GoldenTexts) {
  const char* update = std::getenv("WEFT_UPDATE_GOLDEN");
  for (const codegen::KernelCase& k : codegen::sample_cases()) {
    const CudaCase c = case_of(k);
    std::string text;
    for (const CudaLaunch& l : plan(c.low, c.out).launches) text += l.kernel.text.substr(loop_intrinsics().size());
    EXPECT_LE(std::count(text.begin(), text.end(), '\n'), 100) << k.name;
    if (update) {
      std::ofstream(str_cat(update, "/", k.name, ".golden")) << text;
      continue;
    }
    std::ifstream file(str_cat("compiler/targets/cuda/print/testdata/", k.name, ".golden"));
    EXPECT_EQ(text, std::string(std::istreambuf_iterator<char>(file), {})) << k.name;
  }
}

TEST(Print, CompilesWithinItsLimits) {
  std::vector<Kernel> kernels;
  for (const codegen::KernelCase& k : codegen::sample_cases()) {
    const CudaCase c = case_of(k);
    for (const CudaLaunch& l : plan(c.low, c.out).launches) kernels.push_back(l.kernel);
    KernelTextOptions near;
    near.approximate = true;
    near.symbol = str_cat("near_", kernels.size());
    for (const CudaLaunch& l : plan(c.low, c.out, {}, near).launches) kernels.push_back(l.kernel);
  }
  std::string table;
  WEFT_EXPECT_COMPILES(kernels, {}, tested_archs(), &table);
  if (std::getenv("WEFT_SHOW")) printf("%s", table.c_str());
}

}  // namespace
}  // namespace weft::cuda
