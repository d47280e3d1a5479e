#include "distributed/launch/free_memory.h"

#include <algorithm>
#include <fstream>

namespace weft::dist {
namespace {

// The number after the word `name` in a file, or at its begin if `name` is empty; -1: none.
int64_t number_in(const std::string& path, const std::string& name = "") {
  std::ifstream file(path);
  int64_t number = 0;
  for (std::string word; !name.empty() && word != name;)
    if (!(file >> word)) return -1;
  return file >> number ? number : -1;
}

// The names of the files of a group.
struct Version {
  const char *limit, *used, *cached;
};
constexpr Version kV1{"/memory.limit_in_bytes", "/memory.usage_in_bytes", "total_inactive_file"},
    kV2{"/memory.max", "/memory.current", "inactive_file"};

constexpr int64_t kUnknown = INT64_MAX;

// The bytes of a line of /proc/meminfo.
int64_t bytes_of(const std::string& proc, const std::string& line) {
  const int64_t kilobytes = number_in(proc + "/meminfo", line);
  return kilobytes < 0 ? kUnknown : kilobytes << 10;
}

// Calls `fn` with the limit of each group of this process that has one, and the bytes that the group uses.
template <class F>
void each_limit(const std::string& proc, const std::string& groups, const F& fn) {
  std::ifstream lines(proc + "/self/cgroup");
  for (std::string line; std::getline(lines, line);) {
    const size_t v1 = line.find(":memory:");
    if (v1 == line.npos && !line.starts_with("0::")) continue;
    const Version& v = v1 == line.npos ? kV2 : kV1;
    const std::string root = groups + (v1 == line.npos ? "" : "/memory");
    // The limit of a group includes the groups inside it. In a container, the root is the group of the container.
    for (std::string group = line.substr(v1 == line.npos ? 3 : v1 + 8);; group.resize(group.rfind('/'))) {
      if (group == "/") group.clear();
      const std::string folder = root + group;
      const int64_t limit = number_in(folder + v.limit), used = number_in(folder + v.used);
      // The kernel drops pages of files before a group reaches its limit.
      const int64_t cached = std::max<int64_t>(0, number_in(folder + "/memory.stat", v.cached));
      if (limit >= 0 && used >= 0) fn(limit, used - cached);
      if (group.find('/') == group.npos) break;
    }
  }
}

}  // namespace

int64_t free_memory(const std::string& proc, const std::string& groups) {
  int64_t free = bytes_of(proc, "MemAvailable:");
  each_limit(proc, groups,
             [&](int64_t limit, int64_t used) { free = std::min(free, std::max<int64_t>(0, limit - used)); });
  return free == kUnknown ? -1 : free;
}

int64_t host_memory(const std::string& proc, const std::string& groups) {
  int64_t memory = bytes_of(proc, "MemTotal:");
  each_limit(proc, groups, [&](int64_t limit, int64_t) { memory = std::min(memory, limit); });
  const int64_t swap = bytes_of(proc, "SwapTotal:");
  return memory == kUnknown ? -1 : swap == kUnknown ? memory : memory + swap;
}

}  // namespace weft::dist
