#include "compiler/targets/cuda/nvrtc/library.h"

#include <glob.h>

#include "framework/base/str_cat.h"
#include "framework/base/switches.h"
#include "framework/cuda/libraries/driver_api.h"
#include "framework/cuda/libraries/dynamic_library.h"
#include "framework/cuda/libraries/library_places.h"

namespace weft::cuda {

// NVRTC opens its second library by name when it compiles. The loader does not find it in an unknown folder, but it
// does find a library that is already open.
static void open_builtins(const std::string& path) {
  const std::string folder = path.substr(0, path.rfind('/') + 1);
  glob_t found{};
  if (!folder.empty() && ::glob((folder + "libnvrtc-builtins.so.*").c_str(), 0, nullptr, &found) == 0)
    for (size_t i = 0; i < found.gl_pathc; ++i) static_cast<void>(DynamicLibrary{found.gl_pathv[i]});
  ::globfree(&found);
}

namespace internal {

Nvrtc open_nvrtc(const std::vector<std::string>& candidates) {
  Nvrtc n;
  DynamicLibrary library(candidates);
  if (!library.open()) {
    n.unavailable = str_cat("NVRTC, NVIDIA's compiler of kernels, cannot be used: ", library.why_not(),
                            "; need CUDA 12 or later, or its path in WEFT_NVRTC");
    return n;
  }
  n.path = library.path();
  open_builtins(n.path);
#define WEFT_ROW(name) \
  { #name, reinterpret_cast < void**>(&n.call.name) }
  const WantedSymbol rows[] = {
      WEFT_ROW(nvrtcVersion),           WEFT_ROW(nvrtcGetErrorString), WEFT_ROW(nvrtcGetNumSupportedArchs),
      WEFT_ROW(nvrtcGetSupportedArchs), WEFT_ROW(nvrtcCreateProgram),  WEFT_ROW(nvrtcDestroyProgram),
      WEFT_ROW(nvrtcCompileProgram),    WEFT_ROW(nvrtcGetCUBINSize),   WEFT_ROW(nvrtcGetCUBIN),
      WEFT_ROW(nvrtcGetPTXSize),        WEFT_ROW(nvrtcGetPTX),         WEFT_ROW(nvrtcGetProgramLogSize),
      WEFT_ROW(nvrtcGetProgramLog),
  };
#undef WEFT_ROW
  if (std::string missing = library.fill(rows); !missing.empty()) {
    n.unavailable = str_cat("NVRTC cannot be used: ", missing, "; need CUDA 12 or later");
    return n;
  }
  int count = 0;
  if (n.call.nvrtcVersion(&n.major, &n.minor) != 0 || n.major < 12) {
    n.unavailable = str_cat("NVRTC at ", n.path, " has version ", n.version(), "; need 12.0 or later");
    return n;
  }
  if (n.call.nvrtcGetNumSupportedArchs(&count) == 0 && count > 0) {
    n.archs.resize(count);
    if (n.call.nvrtcGetSupportedArchs(n.archs.data()) != 0) n.archs.clear();
  }
  return n;
}

}  // namespace internal

std::string unfit_for_driver(const Nvrtc& n, int driver_version) {
  const int driver = driver_version / 1000;
  if (!n.unavailable.empty() || n.major <= driver) return "";
  return str_cat("NVRTC ", n.version(), " at ", n.path, " compiles for drivers of CUDA ", n.major,
                 ".0 or later, and this one is for CUDA ", version_text(driver_version),
                 "; need a newer driver, or NVRTC ", driver, " (its path in WEFT_NVRTC)");
}

const Nvrtc& nvrtc() {
  // Never unloaded: compilations may be running when the process ends.
  static const Nvrtc* n = new Nvrtc(
      internal::open_nvrtc(library_places("nvrtc", switch_value("WEFT_NVRTC"), availability().version / 1000)));
  return *n;
}

}  // namespace weft::cuda
