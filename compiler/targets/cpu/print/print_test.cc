// Kernels of every kind: the vector text, the scalar text and the interpreter give the same bits.
#include "compiler/targets/cpu/print/print.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "compiler/targets/cpu/print/testing/kernel_case.h"
#include "compiler/targets/cpu/print/testing/sample_kernels.h"
#include "compiler/targets/cpu/print/testing/standalone.h"
#include "framework/base/str_cat.h"

namespace weft::codegen {
namespace {

using kernels::Pw;
using kernels::Rd;
using loop_ir::Level;
using loop_ir::Mode;
using loop_ir::Type;

// All cases in one translation unit per target.
void check(const std::vector<KernelCase>& cases) {
  std::vector<loop_ir::Kernel> kernels;
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
    KernelCase c{str_cat("softmax of ", n), softmax_kernel(), {3, n}};
    c.lay_out();
    c.extremes = false;
    cases.push_back(c);
  }
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

TEST(Print, LargeResultsGoPastTheCaches) {
  KernelBuilder b(Mode::kRows, 2);
  const int x = b.in(kFloat32, "s1"), y = b.out(kFloat32, "s1");
  b.loop();
  const int v = b.load(x);
  b.store(y, b.pw(Pw::mul, v, v));
  ASSERT_NE(print(b.kernel, cpu()).find("put_far"), std::string::npos);
  const KernelFn fn = compile({b.kernel}, cpu())[0];
  const int64_t rows = 4, lanes = (2 << 20) + 64, n = rows * lanes;
  std::vector<float> memory(2 * n + 64);
  float* const in = memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64) / 4;
  float* const other = in + n;
  for (const bool overwrites : {false, true}) {
    float* const out = overwrites ? in : other;
    for (int64_t i = 0; i < n; ++i) in[i] = static_cast<float>(i % 4099);
    void* ptr[] = {in, out};
    const int64_t strides[] = {lanes, 1, lanes, 1}, extents[] = {rows, lanes};
    const loop_ir::Args args{ptr, strides, extents, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr};
    // Parts that also begin and end inside cache lines.
    for (const WorkRange& p : {WorkRange{0, 1, 1, 0, lanes},
                               {1, 3, 1, 0, 1000},
                               {1, 3, 1, 1000, lanes},
                               {3, 4, 1, 0, 77},
                               {3, 4, 1, 77, lanes}})
      fn(args, p.o0, p.o1, p.step, p.l0, p.l1);
    for (int64_t i = 0; i < n; ++i) ASSERT_EQ(out[i], static_cast<float>((i % 4099) * (i % 4099))) << i;
  }
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
        if (wrong) {  // one op of the reference differs
          const size_t at = text.find("*", text.find("void reference"));
          const size_t product = text.find(" * load", at) != text.npos ? text.find(" * load", at) : text.npos;
          if (product == text.npos) continue;
          text[product + 1] = '-';
        }
        const std::string file = str_cat(dir, "/alone");
        std::ofstream(file + ".cc") << text;
        EXPECT_EQ(output_of(str_cat("g++ -O1 -w -march=", march(), " -o ", file, " ", file, ".cc 2>&1")), "");
        if (wrong) {
          EXPECT_NE(output_of(file).find("differs at element"), std::string::npos) << c.name;
        } else {
          EXPECT_EQ(output_of(file), "equal\n") << c.name;
        }
      }
    }
}

// WEFT_UPDATE_GOLDEN=DIR writes the texts to DIR.
TEST(Print, GoldenTexts) {
  const char* update = std::getenv("WEFT_UPDATE_GOLDEN");
  for (const KernelCase& c : sample_cases()) {
    const std::string text = print(c.kernel, cpu(), {.symbol = c.name, .notes = true});
    EXPECT_LE(std::count(text.begin(), text.end(), '\n'), 60) << c.name;
    if (update) {
      std::ofstream(str_cat(update, "/", c.name, ".golden")) << text;
      continue;
    }
    std::ifstream file(str_cat("compiler/targets/cpu/print/testdata/", c.name, ".golden"));
    EXPECT_EQ(text, std::string(std::istreambuf_iterator<char>(file), {})) << c.name;
  }
}

}  // namespace
}  // namespace weft::codegen
