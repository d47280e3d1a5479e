// The memory that a host has left for this process.
#pragma once
#include <cstdint>
#include <string>

namespace weft::dist {

/// The bytes of memory that the host can still give to this process, or a control group of this process (cgroup v1 and
/// v2) if it can give fewer; -1: unknown. Tests name other folders than /proc and /sys/fs/cgroup.
int64_t free_memory(const std::string& proc = "/proc", const std::string& groups = "/sys/fs/cgroup");

}  // namespace weft::dist
