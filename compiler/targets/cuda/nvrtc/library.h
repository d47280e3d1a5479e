// NVRTC, the compiler of CUDA C++, found at run time: its functions in a table, declared here after its C interface, so
// that no toolkit is needed to build. A machine without it gets the reason in one sentence.
#pragma once
#include <cstddef>
#include <string>
#include <vector>

namespace weft::cuda {

/// A program under compilation, NVRTC's own.
struct NvrtcProgram;
enum NvrtcResult : int { kNvrtcSuccess = 0 };

/// NVRTC's functions by their names in its header.
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

/// The library as found, or why there is none.
struct Nvrtc {
  NvrtcTable call = {};
  std::string path;
  int major = 0, minor = 0;
  std::vector<int> archs;   // that it compiles for, as 80, 90, ...
  std::string unavailable;  // not empty: it cannot be used, and why, in one sentence
  std::string version() const { return std::to_string(major) + "." + std::to_string(minor); }
};

/// Looks once per process: switch WEFT_NVRTC, the loader's own path, the toolkit's usual folder, the folders of
/// NVIDIA's Python wheels. Needs version 12.0 or later.
const Nvrtc& nvrtc();

/// One sentence if a driver of this version (13000: CUDA 13.0) does not take what this NVRTC compiles, else empty: a
/// driver runs what toolkits of its own major version and of older ones make.
std::string unfit_for_driver(const Nvrtc& n, int driver_version);

namespace internal {
/// The same for one file or name; for tests.
Nvrtc open_nvrtc(const std::vector<std::string>& candidates);
}  // namespace internal

}  // namespace weft::cuda
