// The CUDA text of kernels of every kind, run on the CPU, gives the bits of the interpreter.
#include <gtest/gtest.h>

#include "compiler/codegen/sample_kernels.h"
#include "compiler/cuda/codegen/cuda_case.h"
#include "framework/base/cat.h"

namespace weft::cuda {
namespace {

void check(const std::vector<CudaCase>& cases) {
  for (const std::string& s : differences(cases)) ADD_FAILURE() << s;
}

TEST(Emulate, Samples) {
  std::vector<CudaCase> cases;
  for (const codegen::KernelCase& k : codegen::sample_cases())
    for (const bool wide : {false, true}) {
      cases.push_back(case_of(k));
      cases.back().wide = wide;
    }
  check(cases);
}

}  // namespace
}  // namespace weft::cuda
