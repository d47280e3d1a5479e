// NVRTC, the compiler of CUDA C++, found at run time. Its functions are in a table, declared here like its C interface,
// so that a build needs no toolkit. On a machine without it, `unavailable` gives the reason in one sentence.
#pragma once
#include <cstddef>
#include <string>
#include <vector>

namespace weft::cuda {

/// A program being compiled; NVRTC owns it.
struct NvrtcProgram;
enum NvrtcResult : int { kNvrtcSuccess = 0 };

/// NVRTC's functions, by their names in its header.
struct NvrtcTable {
  NvrtcResult (*nvrtcVersion)(int* major, int* minor);
  const char* (*nvrtcGetErrorString)(NvrtcResult result);
  NvrtcResult (*nvrtcGetNumSupportedArchs)(int* count);
  NvrtcResult (*nvrtcGetSupportedArchs)(int* archs);
  NvrtcResult (*nvrtcCreateProgram)(NvrtcProgram** program, const char* text, const char* name, int headers,
                                    const char* const* header_texts, const char* const* header_names);
  NvrtcResult (*nvrtcDestroyProgram)(NvrtcProgram** program);
  NvrtcResult (*nvrtcCompileProgram)(NvrtcProgram* program, int options, const char* const* option);
  NvrtcResult (*nvrtcGetCUBINSize)(NvrtcProgram* program, size_t* bytes);
  NvrtcResult (*nvrtcGetCUBIN)(NvrtcProgram* program, char* cubin);
  NvrtcResult (*nvrtcGetPTXSize)(NvrtcProgram* program, size_t* bytes);
  NvrtcResult (*nvrtcGetPTX)(NvrtcProgram* program, char* ptx);
  NvrtcResult (*nvrtcGetProgramLogSize)(NvrtcProgram* program, size_t* bytes);
  NvrtcResult (*nvrtcGetProgramLog)(NvrtcProgram* program, char* log);
};

/// The library that was found, or why there is none.
struct Nvrtc {
  NvrtcTable call = {};
  std::string path;
  int major = 0, minor = 0;
  std::vector<int> archs;   // for which it compiles, as 80, 90, ...
  std::string unavailable;  // why it cannot be used, in one sentence; empty if it can
  std::string version() const { return std::to_string(major) + "." + std::to_string(minor); }
};

/// Searches once per process: switch WEFT_NVRTC, the loader's own path, the usual folder of the toolkit, the folders of
/// NVIDIA's Python wheels. Needs version 12.0 or later.
const Nvrtc& nvrtc();

/// Why a driver of this version (13000: CUDA 13.0) does not accept the code of this NVRTC, in one sentence; empty if it
/// does. A driver accepts the code of toolkits of its own major version and of older ones.
std::string unfit_for_driver(const Nvrtc& n, int driver_version);

namespace internal {
/// The same with these files or names; for tests.
Nvrtc open_nvrtc(const std::vector<std::string>& candidates);
}  // namespace internal

}  // namespace weft::cuda
