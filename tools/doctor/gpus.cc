#include "tools/doctor/gpus.h"

#include "compiler/targets/cuda/nvrtc/library.h"
#include "framework/base/error.h"
#include "framework/cuda/gpu.h"
#include "framework/cuda/libraries/cublaslt.h"
#include "framework/cuda/libraries/dynamic_library.h"

namespace weft::tools {
namespace {

// "13.1.0" for version 130100: 10000 x major + 100 x minor + patch.
std::string dotted(size_t version) { return str_cat(version / 10000, ".", version % 10000 / 100, ".", version % 100); }

void add(FactList& facts, const char* name, const std::string& version, const std::string& unavailable) {
  if (unavailable.empty()) {
    facts.add("libraries", name, version);
  } else {
    facts.add_absent("libraries", name, unavailable);
  }
}

}  // namespace

void add_gpus(FactList& facts) {
  const cuda::Availability& driver = cuda::availability();
  add(facts, "cuda_driver", cuda::version_text(driver.version), driver.why);
  if (driver.ok) {
    facts.add("libraries", "gpus", static_cast<double>(driver.devices));
    for (int i = 0; i < driver.devices; ++i) {
      std::string text;
      try {
        text = cuda::gpu_properties(i).to_string();
      } catch (const Error& e) {
        text = e.what();
      }
      facts.add("libraries", str_cat("gpu_", i), text);
    }
  }

  const cuda::Nvrtc& nvrtc = cuda::nvrtc();
  const std::string unfit = driver.ok ? cuda::unfit_for_driver(nvrtc, driver.version) : "";
  add(facts, "nvrtc", nvrtc.version(), nvrtc.unavailable.empty() ? unfit : nvrtc.unavailable);
  const cuda::CublasLtLibrary& cublaslt = cuda::cublaslt_library();
  add(facts, "cublaslt", dotted(cublaslt.version), cublaslt.unavailable);

  cuda::DynamicLibrary nccl = {"libnccl.so.2", "/usr/local/cuda/lib64/libnccl.so.2"};
  int (*nccl_version)(int*) = nullptr;
  const cuda::WantedSymbol wanted[] = {{"ncclGetVersion", reinterpret_cast<void**>(&nccl_version)}};
  std::string missing = nccl.fill(wanted);
  int version = 0;
  if (missing.empty() && nccl_version(&version) != 0) missing = "ncclGetVersion fails";
  add(facts, "nccl", dotted(version), missing);
}

}  // namespace weft::tools
