// The CUDA text of kernels of every kind, run on the CPU, gives the same bits as the interpreter.
#include <gtest/gtest.h>

#include <algorithm>
#include <tuple>

#include "compiler/targets/cpu/print/testing/sample_kernels.h"
#include "compiler/targets/cuda/print/testing/cuda_case.h"
#include "framework/base/str_cat.h"

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

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = 0; (at = text.find(from, at)) != text.npos; at += to.size()) text.replace(at, from.size(), to);
  return text;
}

// Typical faults of generators, put into every sample: two blocks, two warps or two lanes do the same work.
TEST(Emulate, RacesAreFound) {
  std::vector<CudaCase> cases;
  for (const codegen::KernelCase& k : codegen::sample_cases()) cases.push_back(case_of(k));
  for (const auto& [from, to, by] : {std::tuple{"blockIdx.x", "(blockIdx.x / 2)", "blocks"},
                                     {"threadIdx.x", "(threadIdx.x / 64 * 32 + threadIdx.x % 32)", "warps"},
                                     {"threadIdx.x", "(threadIdx.x & ~1u)", "lanes"}}) {
    const std::vector<std::string> found =
        faults(cases, [&](const std::string& text) { return replaced(text, from, to); });
    for (size_t i = 0; i < cases.size(); ++i) {
      uint64_t blocks = 0;
      int threads = 0;
      for (const CudaLaunch& l : plan_of(cases[i], "k").launches) {
        blocks = std::max<uint64_t>(blocks, l.grid.x);
        threads = std::max(threads, l.kernel.threads);
      }
      if ((std::string(by) == "blocks" && blocks < 2) || (std::string(by) == "warps" && threads < 64)) continue;
      const bool race =
          found[i].find(", which thread ") != found[i].npos || found[i].find(", which block ") != found[i].npos;
      EXPECT_TRUE(race) << by << " of " << cases[i].name << ": " << found[i];
    }
  }
}

}  // namespace
}  // namespace weft::cuda
