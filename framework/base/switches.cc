#include "framework/base/switches.h"

#include <cstdlib>
#include <map>

#include "framework/base/error.h"
#include "framework/base/mutex.h"

namespace weft {
namespace {

constexpr Switch kSwitches[] = {
    {"WEFT_DEBUG", "0..2: 1 one line per launch, 2 also one line per pass", "0"},
    {"WEFT_DUMP", "folder for the graph after each pass that changed it", ""},
    {"WEFT_DISABLE", "comma-separated names of passes to skip, or all", ""},
    {"WEFT_EXEC", "how compile(fn) runs: compiled, interp (graph interpreter) or eager", "compiled"},
    {"WEFT_VERIFY",
     "compare the first results of each kernel with the reference: 0, 1, or auto (fused kernels, in tests)", "auto"},
    {"WEFT_VERIFY_IR", "verify graphs: 0 off, 1 at stage ends, 2 after each pass", "1"},
    {"WEFT_TRACE", "file for a Chrome trace of launches", ""},
    {"WEFT_CACHE", "folder of the kernel cache, or off", ""},
    {"WEFT_CXX", "the compiler of kernels; empty: g++, c++ or clang++ from PATH", ""},
    {"WEFT_CXX_SECONDS", "time limit of one run of that compiler; then kernels are interpreted", "60"},
    {"WEFT_NVRTC", "path of libnvrtc, the compiler of CUDA kernels; empty: the usual locations", ""},
    {"WEFT_CUBLASLT", "path of libcublasLt, matrix products on a GPU; empty: the usual locations", ""},
    {"WEFT_CUDA_GRAPH", "replay compiled steps on a GPU as one CUDA graph: 0 or 1", "1"},
    {"WEFT_SYNC", "run devices synchronously: 0 or 1", "0"},
    {"WEFT_ISA", "instruction set of CPU kernels: auto, baseline, avx2 or avx512", "auto"},
    {"WEFT_THREADS", "threads of the pool, 0 for all cores", "0"},
};

struct Overrides {
  Mutex mutex;
  std::map<std::string, std::string, std::less<>> values WEFT_GUARDED_BY(mutex);
};
Overrides& overrides() {
  static Overrides* o = new Overrides;
  return *o;
}

const Switch& find(std::string_view name) {
  for (const Switch& s : kSwitches)
    if (name == s.name) return s;
  internal::fail(Code::kNotFound, str_cat("unknown switch ", name));
}

}  // namespace

std::span<const Switch> all_switches() { return kSwitches; }

std::string switch_value(std::string_view name) {
  const Switch& s = find(name);
  {
    MutexLock lock(overrides().mutex);
    auto it = overrides().values.find(name);
    if (it != overrides().values.end()) return it->second;
  }
  const char* env = std::getenv(s.name);
  return env && *env ? env : s.fallback;
}

void set_switch(std::string_view name, std::string value) {
  find(name);
  MutexLock lock(overrides().mutex);
  overrides().values[std::string(name)] = std::move(value);
}

bool switch_on(std::string_view name) {
  std::string v = switch_value(name);
  for (const char* t : {"1", "true", "on", "yes"})
    if (v == t) return true;
  for (const char* f : {"", "0", "false", "off", "no"})
    if (v == f) return false;
  internal::fail(Code::kInvalidArgument, str_cat(name, ": got '", v, "'; need 0 or 1"));
}

long switch_int(std::string_view name) {
  std::string v = switch_value(name);
  char* end = nullptr;
  long n = std::strtol(v.c_str(), &end, 10);
  WEFT_CHECK(!v.empty() && *end == 0, name, ": got '", v, "'; need a whole number");
  return n;
}

}  // namespace weft
