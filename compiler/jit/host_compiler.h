// The host's C++ compiler: which one, the flags for kernels, and one run that makes shared objects from texts.
#pragma once
#include <string>
#include <vector>

#include "framework/base/cpu.h"

namespace weft::jit {

struct HostCompiler {
  std::string path;         // absolute
  std::string version;      // all of --version
  std::string unavailable;  // not empty: why there is none, in one sentence
  bool clang() const { return version.find("clang") != std::string::npos; }
};

/// The compiler `wanted` (a path or a name on PATH), or by switch WEFT_CXX, or the first of g++, c++, clang++ on PATH
/// that runs. Asked once per process and name; `memo_folder`, if not empty, keeps --version across processes, which
/// saves starting a program.
HostCompiler find_compiler(const std::string& wanted, const std::string& memo_folder);

/// Flags for kernels on `isa`: the least compile time at the speed of -O2.
std::vector<std::string> kernel_flags(const HostCompiler& compiler, Isa isa);

/// One translation unit, as a file, and the shared object to make of it.
struct Unit {
  std::string source, object;  // paths
  std::string failure;         // after compile(): not empty if there is no object, a clause like "ended with ..."
  std::string output;          // what the compiler printed
  bool timed_out = false;
};

/// Compiles all units at once, each within `seconds`. Temporary files go to `folder`.
void compile(const HostCompiler& compiler, const std::vector<std::string>& flags, std::vector<Unit>& units,
             const std::string& folder, double seconds);

}  // namespace weft::jit
