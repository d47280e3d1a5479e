// Kernels from C++ text: finds them in this process or in the cache on disk, or builds them with the host's compiler. A
// kernel is one extern "C" function. Its key is its content: text, prelude, flags, compiler and format. So the function
// found under a key is the function that the text defines. Functions are never unloaded.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "framework/base/cpu.h"

namespace weft::jit {

/// One kernel: its extern "C" function `symbol`, and the text that defines it, without prelude and includes. The
/// function is compiled in its own namespace, under a name that its content makes unique.
struct Source {
  std::string symbol;
  std::string text;
};

/// Kernels that share a prelude and an instruction set.
struct KernelRequest {
  std::string prelude;
  std::vector<Source> kernels;
  Isa isa = Isa::baseline;
  std::vector<std::string> flags = {};  // flags of the compiler, after its own
};

struct JitOptions {
  std::string cache;      // folder of the cache, "off", or empty for default_cache()
  std::string compiler;   // path or name of the compiler; empty: switch WEFT_CXX, else g++, c++, clang++ of PATH
  double time_limit = 0;  // seconds of wall time for one run of the compiler; 0: switch WEFT_CXX_SECONDS
  int64_t max_bytes = int64_t{256} << 20;      // limit of the folder; the least recently used entries are removed first
  int64_t min_free_bytes = int64_t{16} << 20;  // a disk with less free space is not used
  int units = 0;                               // translation units per load; 0: one per core
  bool faults_are_errors = true;               // false: a kernel that does not compile gets no function, and a note
};

struct Loaded {
  std::vector<void*> functions;  // one per kernel; null only if `unavailable` is set or a note gives the reason
  int64_t compiled = 0, from_memory = 0, from_disk = 0;
  int64_t damaged = 0;             // entries that were damaged on disk; their kernels were built again
  double seconds = 0;              // time of the whole load
  std::string unavailable;         // why there is no usable compiler, in one sentence; empty if there is one
  std::vector<std::string> notes;  // limitations (no cache folder, full disk), one sentence each
};

/// Finds or builds all kernels of `request`. Throws weft::Error if a kernel does not compile (with its name, the first
/// error of the compiler and the file that keeps the source; see faults_are_errors), or if it is unsafe to load code
/// from a cache folder that the user asked for. A kernel whose compilation reaches the time limit gets no function and
/// a note. After four such waits the compiler counts as unusable for the rest of the process. Any thread may call it.
Loaded load(const KernelRequest& request, const JitOptions& options = {});

/// The folder for an empty JitOptions::cache: switch WEFT_CACHE, else $TEST_TMPDIR/weft-kernels in a test, else
/// $XDG_CACHE_HOME/weft/kernels, else ~/.cache/weft/kernels; "off" if none of these is set.
std::string default_cache();

/// The compiler and the cache that load() would use, for display.
struct CompilerStatus {
  std::string compiler, version;  // path, and the first line of --version
  std::string unavailable;        // why there is no compiler
  std::string cache;              // folder, or "off"
  std::string note;               // why the folder is not used, or a remark about its use
  int64_t cache_bytes = 0, cache_kernels = 0;
};
CompilerStatus status(const JitOptions& options = {});

/// The cores on which this process may run, 1 to 64: how many kernels are compiled at once.
int usable_cores();

}  // namespace weft::jit
