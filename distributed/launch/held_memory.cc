#include "distributed/launch/held_memory.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "framework/base/str_cat.h"

namespace weft::dist {

// The folder has small files only: the files in memory have the tensors.
HeldMemory::HeldMemory(int files) {
  if (files == 0) return;
  folder_ = quick_folder("weft-memory-", int64_t{32} << 20);
  if (path().empty()) refused_ = str_cat("no folder can be made in ", temporary_parent());
  for (int i = 0; i < files && !path().empty(); ++i) {
    const int fd = memfd_create("weft-state", MFD_CLOEXEC);
    if (fd >= 0) files_.push_back(fd);
    const std::string of_this = str_cat("/proc/", static_cast<int64_t>(getpid()), "/fd/", fd);
    if (fd >= 0 && symlink(of_this.c_str(), file(path(), i).c_str()) == 0) continue;
    refused_ = str_cat(fd < 0 ? "memfd_create: " : "symlink: ", std::strerror(errno));
    folder_ = {};
  }
}

HeldMemory::~HeldMemory() {
  for (const int fd : files_) close(fd);
}

std::string HeldMemory::file(const std::string& folder, int number) { return str_cat(folder, "/file.", number); }

int64_t HeldMemory::bytes(const std::string& folder) {
  int64_t all = 0;
  struct stat s {};
  for (int i = 0; stat(file(folder, i).c_str(), &s) == 0; ++i) all += int64_t{s.st_blocks} * 512;
  return all;
}

}  // namespace weft::dist
