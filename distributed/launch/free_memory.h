// The memory that a host has for this process, and the part of it that is free.
#pragma once
#include <cstdint>
#include <string>

namespace weft::dist {

/// The bytes of memory that the host can still give to this process, or a control group of this process (cgroup v1 and
/// v2) if it can give fewer; -1: unknown. Tests name other folders than /proc and /sys/fs/cgroup.
int64_t free_memory(const std::string& proc = "/proc", const std::string& groups = "/sys/fs/cgroup");
/// The most bytes that this process can ever have here: the memory of the host, or of a control group that has less,
/// and swap space; -1: unknown.
int64_t host_memory(const std::string& proc = "/proc", const std::string& groups = "/sys/fs/cgroup");

}  // namespace weft::dist
