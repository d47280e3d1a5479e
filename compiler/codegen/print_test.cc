// Kernels of every kind: the vector text, the scalar text and the interpreter give the same bits.
#include "compiler/codegen/print.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "compiler/codegen/kernel_case.h"
#include "compiler/codegen/sample_kernels.h"
#include "compiler/codegen/standalone.h"
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
    EXPECT_EQ(difference(run(cases[i], vector[i]), want), "") << cases[i].name << ", vector text\n"
                                                              << kernels[i].to_string();
    EXPECT_EQ(difference(run(cases[i], scalar[i]), want), "") << cases[i].name << ", scalar text\n"
                                                              << kernels[i].to_string();
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

std::string output_of(const std::string& command) {
  std::string text;
  FILE* pipe = popen(command.c_str(), "r");
  char buffer[256];
  while (fgets(buffer, sizeof buffer, pipe)) text += buffer;
  pclose(pipe);
  return text;
}

TEST(Print, StandaloneProgramsCompareTheirTwins) {
  const std::string dir = ::testing::TempDir();
  for (const char* name : {"rms_norm_backward", "outer_softmax", "split_sum"})
    for (const KernelCase& c : sample_cases()) {
      if (c.name != name) continue;
      for (const bool wrong : {false, true}) {
        std::string text = print_standalone(c.kernel, {c.extents, c.strides, c.params});
        if (wrong) {  // one op of the reference is another
          const size_t at = text.find("*", text.find("void reference"));
          const size_t product = text.find(" * load", at) != text.npos ? text.find(" * load", at) : text.npos;
          if (product == text.npos) continue;
          text[product + 1] = '-';
        }
        const std::string file = cat(dir, "/alone");
        std::ofstream(file + ".cc") << text;
        EXPECT_EQ(output_of(cat("g++ -O1 -w -march=", march(), " -o ", file, " ", file, ".cc 2>&1")), "");
        if (wrong) {
          EXPECT_NE(output_of(file).find("differs at element"), std::string::npos) << c.name;
        } else {
          EXPECT_EQ(output_of(file), "equal\n") << c.name;
        }
      }
    }
}

// WEFT_UPDATE_GOLDEN=DIR writes the texts there.
TEST(Print, GoldenTexts) {
  const char* update = std::getenv("WEFT_UPDATE_GOLDEN");
  for (const KernelCase& c : sample_cases()) {
    const std::string text = print(c.kernel, cpu(), {.symbol = c.name, .notes = true});
    EXPECT_LE(std::count(text.begin(), text.end(), '\n'), 60) << c.name;
    if (update) {
      std::ofstream(cat(update, "/", c.name, ".golden")) << text;
      continue;
    }
    std::ifstream file(cat("compiler/codegen/testdata/", c.name, ".golden"));
    EXPECT_EQ(text, std::string(std::istreambuf_iterator<char>(file), {})) << c.name;
  }
}

}  // namespace
}  // namespace weft::codegen
