// gpu kernels: compiles the kernels of the benchmarks into WEFT_CACHE, also for a GPU that this machine does not have.
// The benchmarks use a fake driver, which runs no kernel. check.sh packs the kernels. Exit code 77: there is no NVRTC.
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>

#include "compiler/targets/cuda/nvrtc/compile.h"
#include "compiler/targets/cuda/nvrtc/library.h"
#include "compiler/targets/cuda/nvrtc/testing/opcodes.h"
#include "compiler/targets/cuda/run/operation_blas.h"
#include "compiler/targets/cuda/run/operation_load.h"
#include "framework/base/str_cat.h"
#include "framework/base/switches.h"
#include "framework/cli/cli.h"
#include "framework/cuda/testing/fake_cublaslt.h"
#include "framework/cuda/testing/fake_driver.h"
#include "tools/gpu/bench.h"

namespace weft {

static int compile_kernels(int sm, const std::string& only) {
  const std::map<int, int> multiprocessors{{80, 108}, {90, 132}, {100, 148}};  // A100, H100 and H200, B200
  check_flag("sm", multiprocessors.contains(sm), str_cat(sm), "80, 90 or 100");
  set_switch("WEFT_CXX", "none");
  cuda::testing::FakeDriver driver({.name = str_cat("sm_", sm),
                                    .sm = sm,
                                    .memory = size_t{80} << 30,
                                    .multiprocessors = multiprocessors.at(sm),
                                    .pages = false});
  const cuda::ScopedDriver in_place(driver.idle_table());
  if (const std::string& why = cuda::nvrtc().unavailable; !why.empty()) {
    std::printf("skipped: %s\n", why.c_str());
    return 77;
  }
  cuda::FakeCublasLt blas(&driver);
  cuda::internal::set_cublaslt(&blas.table());
  size_t kernels = 0, bytes = 0;
  double seconds = 0;
  // The image of a module of the fake driver is the size of its kernel's parameter.
  cuda::internal::set_kernel_compiler([&](std::span<const cuda::Kernel> wanted, cuda::Arch arch) {
    const cuda::CompiledKernels compiled = cuda::compile(wanted, arch);
    for (const std::string& note : compiled.notes) std::fprintf(stderr, "%s\n", note.c_str());
    std::vector<std::string> images;
    for (const cuda::CubinPtr& c : compiled.cubins) {
      images.push_back(str_cat(cuda::parameter_bytes(c->bytes)) + '\0');
      bytes += c->bytes.size();
    }
    kernels += images.size(), seconds += compiled.seconds;
    return images;
  });
  driver.set_resolver([](const void* image, const std::string&) -> std::optional<cuda::testing::FakeKernel> {
    return cuda::testing::FakeKernel{.parameter_bytes = std::strtoull(static_cast<const char*>(image), nullptr, 10),
                                     .run = [](const cuda::testing::FakeLaunch&) {}};
  });
  const int code = bench::run_gpu_bench({.only = only, .compile = true});
  cuda::internal::set_kernel_compiler(nullptr);
  cuda::internal::set_cublaslt(nullptr);
  std::printf("sm %d: %zu kernels, %.1f MB, %.1f s\n", sm, kernels, static_cast<double>(bytes) / 1e6, seconds);
  return code;
}
}  // namespace weft

int main(int argc, char** argv) {
  int sm = 90;
  std::string only;
  return weft::run_program(argc, argv, "Compiles the kernels of the GPU benchmarks into WEFT_CACHE, without a GPU.",
                           {{"sm", &sm, "compute capability of the GPU, times 10: 80, 90 or 100"},
                            {"only", &only, "only of parts whose name contains this"}},
                           [&] { return weft::compile_kernels(sm, only); });
}
