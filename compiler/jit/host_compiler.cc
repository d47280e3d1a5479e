#include "compiler/jit/host_compiler.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <utility>

#include "compiler/jit/process.h"
#include "framework/base/error.h"
#include "framework/base/mutex.h"
#include "framework/base/switches.h"
#include "framework/io/checksum.h"
#include "framework/io/file.h"

namespace weft::jit {
namespace {

bool is_program(const std::string& path) {
  struct stat st;
  return ::stat(path.c_str(), &st) == 0 && S_ISREG(st.st_mode) && ::access(path.c_str(), X_OK) == 0;
}

// The absolute path of a program, found as a shell would find it; empty if there is none.
std::string find_program(const std::string& name) {
  if (name.find('/') != std::string::npos) {
    std::string path = io::resolve_path(name);
    return is_program(path) ? path : "";
  }
  const char* variable = std::getenv("PATH");
  std::string folders = variable ? variable : "/usr/local/bin:/usr/bin:/bin";
  for (size_t begin = 0; begin <= folders.size();) {
    size_t end = std::min(folders.find(':', begin), folders.size());
    std::string path = str_cat(std::string_view(folders).substr(begin, end - begin), "/", name);
    if (path[0] == '/' && is_program(path)) return path;
    begin = end + 1;
  }
  return "";
}

// A file name that changes when the program changes. Empty if that cannot be detected: a script or a launcher like
// ccache keeps its name while the compiler behind it changes.
std::string memo_name(const std::string& path) {
  char* resolved = ::realpath(path.c_str(), nullptr);
  if (!resolved) return "";
  std::string real = resolved;
  std::free(resolved);
  std::string base = io::base_name(real);
  struct stat st;
  if ((base.find("g++") == base.npos && base.find("clang") == base.npos) || ::stat(real.c_str(), &st) != 0) return "";
  std::string head;
  if (FILE* file = std::fopen(real.c_str(), "r")) {
    char magic[4];
    head.assign(magic, std::fread(magic, 1, 4, file));
    std::fclose(file);
  }
  if (head != "\177ELF") return "";
  std::string identity = str_cat(real, " ", int64_t{st.st_size}, " ", int64_t{st.st_mtim.tv_sec}, " ",
                                 int64_t{st.st_mtim.tv_nsec}, " ", uint64_t{st.st_ino}, " ", uint64_t{st.st_dev});
  return str_cat("compiler-", io::hex64(io::checksum(identity)), ".txt");
}

// The first line is a checksum of the rest.
std::string read_memo(const std::string& path) {
  if (!io::exists(path)) return "";
  try {
    std::string text = io::read_file(path, 1 << 16);
    return text.size() > 17 && text.substr(0, 16) == io::hex64(io::checksum(text.substr(17))) ? text.substr(17) : "";
  } catch (const Error&) {
    return "";
  }
}

void write_memo(const std::string& path, const std::string& version) {
  try {
    io::write_file_atomic(path, str_cat(io::hex64(io::checksum(version)), "\n", version));
  } catch (const Error&) {  // the next process asks the compiler again
  }
}

HostCompiler try_compiler(const std::string& name, const std::string& memo_folder) {
  HostCompiler c;
  c.path = find_program(name);
  if (c.path.empty()) {
    c.unavailable = str_cat("there is no program ", name);
    return c;
  }
  std::string memo = memo_folder.empty() ? "" : memo_name(c.path);
  if (!memo.empty()) {
    memo = str_cat(memo_folder, "/", memo);
    c.version = read_memo(memo);
    if (!c.version.empty()) return c;
  }
  Command command{{c.path, "--version"}, {"LC_ALL=C"}};
  ProgramOutcome outcome = run_all({&command, 1}, 10)[0];
  if (!outcome.failure.empty() || outcome.output.empty()) {
    c.unavailable = str_cat(c.path, " --version ", outcome.failure.empty() ? "prints nothing" : outcome.failure);
    return c;
  }
  c.version = outcome.output;
  if (!memo.empty()) write_memo(memo, c.version);
  return c;
}

HostCompiler search(const std::string& wanted, const std::string& memo_folder) {
  if (!wanted.empty()) return try_compiler(wanted, memo_folder);
  HostCompiler last;
  for (const char* name : {"g++", "c++", "clang++"}) {
    HostCompiler c = try_compiler(name, memo_folder);
    if (c.unavailable.empty()) return c;
    // A compiler that exists but does not run gives a better message than a missing one.
    if (last.unavailable.empty() || !c.path.empty()) last = c;
  }
  if (last.path.empty()) last.unavailable = "there is no g++, c++ or clang++ on PATH";
  return last;
}

}  // namespace

HostCompiler find_compiler(const std::string& wanted, const std::string& memo_folder) {
  static Mutex mutex;
  static std::map<std::string, HostCompiler>& known = *new std::map<std::string, HostCompiler>;
  std::string name = wanted.empty() ? switch_value("WEFT_CXX") : wanted;
  MutexLock lock(mutex);
  auto it = known.find(name);
  if (it == known.end()) it = known.emplace(name, search(name, memo_folder)).first;
  return it->second;
}

std::vector<std::string> kernel_flags(const HostCompiler& compiler, Isa isa) {
  constexpr const char* kMarch[kNumIsas] = {"-march=x86-64-v2", "-march=x86-64-v3", "-march=x86-64-v4"};
  std::vector<std::string> flags = {"-std=c++20", kMarch[static_cast<int>(isa)], "-mprefer-vector-width=512",
                                    // The same semantics as the prebuilt kernels (ops/kernels/isa.bzl); never
                                    // contracted.
                                    "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math", "-fwrapv",
                                    "-fno-strict-aliasing", "-fPIC", "-fno-exceptions", "-fno-rtti",
                                    "-fno-asynchronous-unwind-tables", "-fno-stack-protector", "-w", "-pipe",
                                    // libm: log and exp of f64 get their faster versions of glibc 2.29.
                                    "-Wl,--no-as-needed,-lm"};
  // Only intrinsics and assembly use these: they do not change other code.
  if (isa == Isa::avx512 && cpu_features().avx512_bf16) flags.push_back("-mavx512bf16");
  if (isa == Isa::avx512 && cpu_features().amx_bf16) flags.insert(flags.end(), {"-mamx-tile", "-mamx-bf16"});
  // Kernel texts already use vectors and unrolling, so most of -O2 has nothing to improve. Only global CSE (loads of
  // loop invariants) pays.
  if (compiler.clang())
    flags.push_back("-O2");
  else
    flags.insert(flags.end(), {"-O1", "-fgcse", "-fno-ivopts", "-fno-tree-dominator-opts", "-fno-tree-pta"});
  return flags;
}

void compile(const HostCompiler& compiler, const std::vector<std::string>& flags, std::vector<Unit>& units,
             const std::string& folder, double seconds) {
  std::vector<Command> commands;
  for (const Unit& unit : units) {
    Command command{{compiler.path}, {str_cat("TMPDIR=", folder), "LC_ALL=C"}};
    command.argv.insert(command.argv.end(), flags.begin(), flags.end());
    for (const char* arg : {"-shared", "-nostdlib", "-Wl,--build-id=none"}) command.argv.push_back(arg);
    command.argv.insert(command.argv.end(), {"-o", unit.object, unit.source});
    commands.push_back(std::move(command));
  }
  std::vector<ProgramOutcome> outcomes = run_all(commands, seconds);
  for (size_t i = 0; i < units.size(); ++i) {
    units[i].failure = outcomes[i].failure;
    units[i].output = std::move(outcomes[i].output);
    units[i].timed_out = outcomes[i].timed_out;
    if (units[i].failure.empty() && !io::exists(units[i].object)) units[i].failure = "created no file";
  }
}

}  // namespace weft::jit
