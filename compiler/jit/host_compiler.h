// The host's C++ compiler: finding it, its flags for kernels, and one run that compiles texts to shared objects.
#pragma once
#include <string>
#include <vector>

#include "framework/base/cpu.h"

namespace weft::jit {

struct HostCompiler {
  std::string path;         // absolute
  std::string version;      // all of --version
  std::string unavailable;  // why there is no compiler, in one sentence; empty if there is one
  bool clang() const { return version.find("clang") != std::string::npos; }
};

/// The compiler `wanted` (a path or a name on PATH); if that is empty, the compiler of switch WEFT_CXX, or the first of
/// g++, c++, clang++ on PATH that runs. Each process asks once per name. `memo_folder`, if not empty, keeps the output
/// of --version for other processes, which saves starting a program.
HostCompiler find_compiler(const std::string& wanted, const std::string& memo_folder);

/// Flags for kernels on `isa`: the shortest compile time that still gives the speed of -O2.
std::vector<std::string> kernel_flags(const HostCompiler& compiler, Isa isa);

/// One translation unit: the source file, and the shared object to create.
struct Unit {
  std::string source, object;  // paths
  std::string
      failure;         // after compile(): why there is no object, a clause like "ended with ..."; empty if there is one
  std::string output;  // text that the compiler printed
  bool timed_out = false;
};

/// Compiles all units in parallel, each within `seconds`. Temporary files go to `folder`.
void compile(const HostCompiler& compiler, const std::vector<std::string>& flags, std::vector<Unit>& units,
             const std::string& folder, double seconds);

}  // namespace weft::jit
