#include "compiler/cuda/nvrtc/library.h"

#include "framework/base/cat.h"
#include "framework/base/switches.h"
#include "framework/cuda/dynamic_library.h"
#include "framework/cuda/library_places.h"

namespace weft::cuda {
namespace internal {

Nvrtc open_nvrtc(const std::vector<std::string>& candidates) {
  Nvrtc n;
  DynamicLibrary library(candidates);
  if (!library.open()) {
    n.unavailable = cat("NVRTC, NVIDIA's compiler of kernels, cannot be used: ", library.why_not(),
                        "; need CUDA 12 or later, or its path in WEFT_NVRTC");
    return n;
  }
  n.path = library.path();
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
    n.unavailable = cat("NVRTC cannot be used: ", missing, "; need CUDA 12 or later");
    return n;
  }
  int count = 0;
  if (n.call.nvrtcVersion(&n.major, &n.minor) != 0 || n.major < 12) {
    n.unavailable = cat("NVRTC at ", n.path, " has version ", n.version(), "; need 12.0 or later");
    return n;
  }
  if (n.call.nvrtcGetNumSupportedArchs(&count) == 0 && count > 0) {
    n.archs.resize(count);
    if (n.call.nvrtcGetSupportedArchs(n.archs.data()) != 0) n.archs.clear();
  }
  return n;
}

}  // namespace internal

const Nvrtc& nvrtc() {
  // Never unloaded: compilations may be under way when the process ends.
  static const Nvrtc* n = new Nvrtc(internal::open_nvrtc(library_places("nvrtc", switch_value("WEFT_NVRTC"))));
  return *n;
}

}  // namespace weft::cuda
