// The CPU text is plain C++ with the compiler's own vectors: on a 64-bit Arm machine it becomes NEON. Kernels of every
// kind are cross-compiled and run under qemu, where their vector and scalar texts must give the same bits. Skipped,
// with the reason, if the cross compiler or qemu is not installed (Debian: g++-aarch64-linux-gnu, qemu-user).
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "compiler/targets/cpu/print/testing/sample_kernels.h"
#include "compiler/targets/cpu/print/testing/standalone.h"
#include "framework/base/str_cat.h"

namespace weft::codegen {
namespace {

std::string read(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

bool installed(const std::string& program) {
  return std::system(str_cat("command -v ", program, " >/dev/null 2>&1").c_str()) == 0;
}

TEST(Arm, KernelsBecomeNeonAndGiveTheSameBits) {
  constexpr const char *kCompiler = "aarch64-linux-gnu-g++", *kEmulator = "qemu-aarch64";
  if (!installed(kCompiler)) GTEST_SKIP() << "no " << kCompiler << " on PATH";
  const bool runs = installed(kEmulator);
  const std::string dir = ::testing::TempDir();
  for (const KernelCase& c : sample_cases()) {
    const std::string base = str_cat(dir, "/", c.name), log = base + ".log";
    std::ofstream(base + ".cc") << print_standalone(c.kernel, {c.extents, c.strides, c.params});
    const std::string assembly =
        str_cat(kCompiler, " -std=c++20 -O1 -w -ffp-contract=off -S ", base, ".cc -o ", base, ".s >", log, " 2>&1");
    ASSERT_EQ(std::system(assembly.c_str()), 0) << c.name << "\n" << read(log);
    // Four f32 per register.
    EXPECT_NE(read(base + ".s").find(".4s"), std::string::npos) << c.name << " has no NEON in it";
    if (!runs) continue;
    const std::string program = str_cat(kCompiler, " -static ", base, ".s -o ", base, " >", log, " 2>&1 && ", kEmulator,
                                        " ", base, " >", log, " 2>&1");
    EXPECT_EQ(std::system(program.c_str()), 0) << c.name << "\n" << read(log);
    EXPECT_EQ(read(log), "equal\n") << c.name;
  }
  if (!runs) GTEST_SKIP() << "compiled, not run: no " << kEmulator << " on PATH";
}

}  // namespace
}  // namespace weft::codegen
