// Kernels of every kind: the vector text, the scalar text and the interpreter give the same bits.
#include "compiler/codegen/print.h"

#include <gtest/gtest.h>

#include "compiler/codegen/kernel_case.h"
#include "compiler/codegen/sample_kernels.h"
#include "framework/base/cat.h"

namespace weft::codegen {
namespace {

using kernels::Pw;
using kernels::Rd;
using kir::Level;
using kir::Mode;
using kir::Type;

// All cases in one translation unit of each target.
void check(const std::vector<KernelCase>& cases) {
  std::vector<kir::Kernel> kernels;
  for (const KernelCase& c : cases) {
    c.kernel.verify();
    kernels.push_back(c.kernel);
  }
  const auto vector = compile(kernels, cpu()), scalar = compile(kernels, cpu_scalar());
  for (size_t i = 0; i < cases.size(); ++i) {
    const Outcome want = run(cases[i], interpreted(kernels[i]));
    EXPECT_EQ(difference(run(cases[i], vector[i]), want), "") << cases[i].name << ", vector text\n" << kernels[i].to_string();
    EXPECT_EQ(difference(run(cases[i], scalar[i]), want), "") << cases[i].name << ", scalar text\n" << kernels[i].to_string();
  }
}

TEST(Print, SoftmaxOfEveryLength) {
  std::vector<KernelCase> cases;
  for (int64_t n : {0, 1, 15, 16, 17, 1023, 1024, 1025, 2049, 4096, 5000}) {
    KernelCase c{cat("softmax of ", n), softmax_kernel(), {3, n}};
    c.lay_out();
    c.extremes = false;
    cases.push_back(c);
  }
  std::vector<KernelCase> one;
  const auto vector = compile({softmax_kernel()}, cpu()), scalar = compile({softmax_kernel()}, cpu_scalar());
  for (const KernelCase& c : cases) {
    const Outcome want = run(c, interpreted(c.kernel));
    EXPECT_EQ(difference(run(c, vector[0]), want), "") << c.name;
    EXPECT_EQ(difference(run(c, scalar[0]), want), "") << c.name;
  }
}

TEST(Print, Samples) {
  std::vector<KernelCase> cases;
  for (KernelCase& c : sample_cases()) cases.push_back(c);
  check(cases);
}

}  // namespace
}  // namespace weft::codegen
