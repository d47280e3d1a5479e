// compile() without a working compiler or cache: kernels are interpreted, one note says so, and results have the same
// bits.
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "compiler/exec/testing/test_programs.h"
#include "ops/composite/composite.h"
#include "ops/core/core.h"

namespace weft {
namespace {

using testing::same_bits;
using testing::Switched;

std::string temporary(const std::string& name) {
  return str_cat(std::getenv("TEST_TMPDIR") ? std::getenv("TEST_TMPDIR") : "/tmp", "/", name);
}

// A program that answers --version and else does `body`; $last is the source, $out the file to make.
std::string fake_compiler(const std::string& name, const std::string& body) {
  const std::string path = temporary(name);
  std::ofstream(path) << "#!/bin/bash\nif [ \"$1\" = --version ]; then echo fake 1.0; exit 0; fi\n"
                      << "last=\"${@: -1}\"\nfor ((i = 1; i < $#; ++i)); do [ \"${!i}\" = -o ] && { j=$((i + 1)); "
                         "out=\"${!j}\"; }; done\n"
                      << body << "\n";
  ::chmod(path.c_str(), 0755);
  return path;
}

using Fn = std::function<Tensor(Tensor)>;

struct Served {
  std::string report;
  CompileStats stats;
};

// Runs fn compiled and expects the result of eager. Kernels of `fn` must be in no other test.
Served serve(const Fn& fn, const std::string& compiler, const std::string& cache = "off") {
  Switched cxx("WEFT_CXX", compiler), verify("WEFT_VERIFY", "0");
  manual_seed(1);
  const Tensor x = randn({37, 50});
  auto step = compile(fn, {.kernel_cache = cache});
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(same_bits(step(x), fn(x)));
  return {step.report(), step.stats()};
}

size_t count(const std::string& text, const std::string& what) {
  size_t n = 0;
  for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += what.size()) ++n;
  return n;
}

void expect_interpreted(const Served& s, const std::string& why) {
  EXPECT_EQ(s.stats.compilations, 0);
  EXPECT_EQ(count(s.report, "kernels are interpreted: "), 1u) << s.report;
  EXPECT_NE(s.report.find(why), std::string::npos) << s.report;
  EXPECT_NE(s.report.find(", interpreted: "), std::string::npos) << s.report;
}

TEST(Fallback, ACompilerThatFails) {
  expect_interpreted(
      serve([](Tensor x) { return exp(x) - 1.0 / (1.0 + exp(x)); }, fake_compiler("fails", "echo broken >&2; exit 3")),
      "ended with exit status 3");
}

TEST(Fallback, ACompilerThatHangsCostsOnlyTheKernel) {
  Switched limit("WEFT_CXX_SECONDS", "1");
  const Served s = serve([](Tensor x) { return exp(x) * x - x; }, fake_compiler("hangs", "sleep 60"));
  EXPECT_EQ(s.stats.compilations, 0);
  EXPECT_EQ(count(s.report, " is interpreted: the compiler "), 1u) << s.report;
  EXPECT_NE(s.report.find("within 1 s"), std::string::npos) << s.report;
}

TEST(Fallback, ACompilerThatWritesGarbage) {
  expect_interpreted(
      serve([](Tensor x) { return exp(x) * x * x; }, fake_compiler("garbage", "echo garbage > \"$out\"")),
      "cannot be loaded");
}

TEST(Fallback, AKernelThatDoesNotCompileCostsOnlyItself) {
  // Fails for the kernel that has a square root, as if its text were wrong.
  const std::string compiler = fake_compiler(
      "picky",
      "bad=$(awk '/^#line 1 \"kernel/ {s = $3; gsub(/\"/, \"\", s)} s != \"\" && /sqrt/ {print s; exit}' \"$last\")\n"
      "if [ -n \"$bad\" ]; then echo \"$bad:3:1: error: no square roots today\" >&2; exit 1; fi\nexec g++ \"$@\"");
  const Served s = serve(
      [](Tensor x) {
        Tensor rows = softmax(x * 2.0, -1);
        return matmul(rows.t(), sqrt(abs(x) + 1.0) * x - x);
      },
      compiler);
  EXPECT_GE(s.stats.compilations, 1) << s.report;
  EXPECT_EQ(count(s.report, "no square roots today"), 1u) << s.report;
  EXPECT_GE(count(s.report, ", interpreted: "), 1u) << s.report;
  EXPECT_EQ(s.report.find("kernels are interpreted: "), std::string::npos) << s.report;
}

TEST(Fallback, UnderVerifyAKernelThatDoesNotCompileIsAnError) {
  const std::string compiler =
      fake_compiler("strict",
                    "s=$(awk '/^#line 1 \"kernel/ {s = $3; gsub(/\"/, \"\", s); print s; exit}' \"$last\")\n"
                    "echo \"$s:1:1: error: wrong text\" >&2; exit 1");
  Switched cxx("WEFT_CXX", compiler), verify("WEFT_VERIFY", "1");
  auto step = compile([](Tensor x) { return exp(x) + x * x * x; }, {.kernel_cache = "off"});
  EXPECT_NE(testing::error_of([&] { step(ones({8})); }).find("does not compile"), std::string::npos);
}

TEST(Fallback, ACacheThatCannotBeMadeOrIsOff) {
  ::testing::internal::CaptureStderr();
  const Served s = serve([](Tensor x) { return exp(x) + exp(x * x); }, "", "/proc/weft-kernels");
  const std::string warning = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(count(warning, "kernel cache: the folder /proc/weft-kernels cannot be created"), 1u) << warning;
  EXPECT_EQ(s.stats.compilations, 1) << s.report;
  EXPECT_EQ(count(s.report, "kernels are kept in memory only"), 1u) << s.report;
  const Served off = serve([](Tensor x) { return exp(x) - exp(x * x); }, "", "off");
  EXPECT_EQ(off.stats.compilations, 1);
  EXPECT_EQ(off.report.find("kernel cache"), std::string::npos) << off.report;
}

TEST(Fallback, AReadOnlyCacheServesWhatItHas) {
  const std::string folder = temporary("cache");
  std::filesystem::create_directory(folder);
  ::chmod(folder.c_str(), 0700);
  const Fn fn = [](Tensor x) { return x / (exp(x) + x * x); };
  EXPECT_EQ(serve(fn, "", folder).stats.compilations, 1);
  ::chmod(folder.c_str(), 0500);
  EXPECT_EQ(serve(fn, "", folder).stats.compilations, 0);
  EXPECT_EQ(serve([](Tensor x) { return x / (exp(x) - x * x); }, "", folder).stats.compilations, 1);
  ::chmod(folder.c_str(), 0700);
}

TEST(Fallback, DumpHoldsEachKernel) {
  const std::string folder = temporary("kernels");
  Switched dump("WEFT_DUMP", folder);
  auto step = compile([](Tensor x) { return softmax(x, -1); });
  step(ones({4, 20}));
  const std::string report = step.report();
  const size_t at = report.find("source: ");
  ASSERT_NE(at, std::string::npos) << report;
  const std::string path = report.substr(at + 8, report.find('\n', at) - at - 8);
  std::string ir = path.substr(0, path.size() - 3) + ".loop_ir";
  for (const std::string& file : {path, ir}) EXPECT_TRUE(std::filesystem::exists(file)) << file;
  if (std::system("g++ --version > /dev/null 2>&1") != 0) GTEST_SKIP() << "no g++";
  EXPECT_EQ(std::system(str_cat("g++ -std=c++20 -O1 -fsyntax-only -w -march=x86-64-v3 ", path).c_str()), 0);
}

TEST(Fallback, ReportTellsTimes) {
  auto step = compile([](Tensor x, Tensor w) { return softmax(gelu(matmul(x, w)), -1); });
  for (int i = 0; i < 3; ++i) step(ones({64, 64}), ones({64, 64}));
  const std::string report = step.report();
  EXPECT_NE(report.find("of the roofline)"), std::string::npos) << report;
  EXPECT_NE(report.find("GB/s of copying"), std::string::npos) << report;
}

}  // namespace
}  // namespace weft
