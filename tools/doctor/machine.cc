#include "tools/doctor/machine.h"

#include <sched.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>

#include "compiler/jit/jit.h"
#include "framework/base/cpu.h"
#include "framework/base/str_cat.h"
#include "framework/base/thread_pool.h"

namespace weft::tools {
namespace {

// The value of the first line "KEY<blanks>: VALUE" in a /proc file; empty if there is none.
std::string proc_value(const char* path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    size_t colon = line.find(':');
    if (colon == std::string::npos || line.compare(0, key.size(), key) != 0) continue;
    if (line.find_first_not_of(" \t", key.size()) != colon) continue;
    size_t begin = line.find_first_not_of(" \t", colon + 1);
    return begin == std::string::npos ? "" : line.substr(begin);
  }
  return "";
}

const std::set<std::string>& cpu_flags() {
  static const std::set<std::string> flags = [] {
    std::istringstream words(proc_value("/proc/cpuinfo", "flags"));
    std::set<std::string> out;
    for (std::string word; words >> word;) out.insert(word);
    return out;
  }();
  return flags;
}

bool has(const char* flag) { return cpu_flags().count(flag) > 0; }

std::string first_line_of(const std::string& command) {
  std::string out;
  if (FILE* pipe = popen((command + " 2>/dev/null").c_str(), "r")) {
    char line[256];
    if (std::fgets(line, sizeof line, pipe)) out = line;
    pclose(pipe);
  }
  while (!out.empty() && (out.back() == '\n' || out.back() == ' ')) out.pop_back();
  return out;
}

std::string size_text(double bytes) {
  return bytes >= 1 << 30   ? formatted("%.1f GiB", bytes / (1 << 30))
         : bytes >= 1 << 20 ? formatted("%.1f MiB", bytes / (1 << 20))
                            : formatted("%.0f KiB", bytes / 1024);
}

}  // namespace

int usable_cores() {
  cpu_set_t set;
  int cores = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
  double quota = 0, period = 0;
  if (std::ifstream("/sys/fs/cgroup/cpu.max") >> quota >> period && period > 0)
    cores = std::min(cores, std::max(1, static_cast<int>(std::ceil(quota / period))));
  return cores;
}

double clock_hz() {
  std::ifstream file("/proc/cpuinfo");
  double mhz = 0;
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("cpu MHz")) mhz = std::max(mhz, std::atof(line.c_str() + line.find(':') + 1));
  return 1e6 * mhz;
}

double usable_memory() {
  double bytes = static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
  double limit = 0;
  if (std::ifstream("/sys/fs/cgroup/memory.max") >> limit && limit > 0) bytes = std::min(bytes, limit);
  rlimit addresses{};
  if (getrlimit(RLIMIT_AS, &addresses) == 0 && addresses.rlim_cur != RLIM_INFINITY)
    bytes = std::min(bytes, static_cast<double>(addresses.rlim_cur));
  return bytes;
}

void add_machine(FactList& facts) {
  std::string model = proc_value("/proc/cpuinfo", "model name");
  facts.add("cpu", "model", model.empty() ? "unknown" : model);
  facts.add("cpu", "cores", static_cast<double>(usable_cores()));
  for (auto [name, id] :
       {std::pair("l1d", _SC_LEVEL1_DCACHE_SIZE), {"l2", _SC_LEVEL2_CACHE_SIZE}, {"l3", _SC_LEVEL3_CACHE_SIZE}})
    if (long bytes = sysconf(id); bytes > 0) facts.add("cpu", name, size_text(static_cast<double>(bytes)));
  for (const char* flag : {"sse4_2", "avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512vl", "avx512dq",
                           "avx512_bf16", "avx512_fp16", "amx_tile", "amx_bf16", "amx_int8"})
    facts.add_flag("cpu", flag, has(flag));

  facts.add("memory", "total", size_text(usable_memory()));
  if (std::string free = proc_value("/proc/meminfo", "MemAvailable"); !free.empty())
    facts.add("memory", "available", size_text(std::atof(free.c_str()) * 1024));

  utsname system;
  uname(&system);
  facts.add("system", "kernel", std::string(system.sysname) + " " + system.release + " " + system.machine);
  for (auto [name, command] : {std::pair("g++", "g++ -dumpfullversion"), {"clang++", "clang++ -dumpversion"}}) {
    std::string version = first_line_of(command);
    if (version.empty())
      facts.add_absent("system", name, "not in PATH");
    else
      facts.add("system", name, version);
  }
}

void add_choice(FactList& facts) {
  facts.add("weft", "isa", std::string(to_string_view(selected_isa())));
  facts.add("weft", "isa_best", std::string(to_string_view(best_isa())));
  facts.add("weft", "features", cpu_features().to_string());
  facts.add("weft", "threads", static_cast<double>(num_threads()));
  const jit::CompilerStatus kernels = jit::status();
  if (kernels.unavailable.empty())
    facts.add("weft", "kernel_compiler", kernels.compiler + ", " + kernels.version);
  else
    facts.add_absent("weft", "kernel_compiler", kernels.unavailable);
  if (kernels.note.empty())
    facts.add("weft", "kernel_cache",
              kernels.cache == "off" ? "off"
                                     : kernels.cache + ", " + std::to_string(kernels.cache_kernels) + " kernels, " +
                                           size_text(static_cast<double>(kernels.cache_bytes)));
  else
    facts.add_absent("weft", "kernel_cache", kernels.note);
}

}  // namespace weft::tools
