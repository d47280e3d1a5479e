#include "distributed/launch/locked_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <utility>

#include "framework/base/str_cat.h"

namespace weft::dist {
namespace {

namespace fs = std::filesystem;

// Locks a folder of this user that no living process has locked; returns its descriptor, or -1.
int lock(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  struct stat s {};
  if (fd >= 0 && fstat(fd, &s) == 0 && s.st_uid == geteuid() && flock(fd, LOCK_EX | LOCK_NB) == 0) return fd;
  if (fd >= 0) close(fd);
  return -1;
}

void remove_left(const std::string& parent, std::string_view prefix) {
  std::error_code ignored;
  for (fs::directory_iterator at(parent, ignored), end; at != end; at.increment(ignored)) {
    if (!at->path().filename().string().starts_with(prefix)) continue;
    const int fd = lock(at->path());
    if (fd < 0) continue;
    fs::remove_all(at->path(), ignored);
    close(fd);
  }
}

}  // namespace

std::string temporary_parent() {
  const char* const parent = std::getenv("TMPDIR");
  return parent && *parent ? parent : "/tmp";
}

std::string new_folder(const std::string& parent, std::string_view prefix) {
  std::string path = str_cat(parent, "/", prefix, "XXXXXX");
  return mkdtemp(path.data()) ? path : "";
}

LockedFolder::LockedFolder(const std::string& parent, std::string_view prefix) {
  remove_left(parent, prefix);
  for (int i = 0; i < 10 && lock_ < 0; ++i) {  // another process may remove the folder before this one locks it
    path_ = new_folder(parent, prefix);
    lock_ = path_.empty() ? -1 : lock(path_);
    if (lock_ >= 0 && access(path_.c_str(), F_OK) != 0) close(std::exchange(lock_, -1));
  }
  if (lock_ < 0) path_.clear();
}

LockedFolder::~LockedFolder() {
  std::error_code ignored;
  if (!path_.empty()) fs::remove_all(path_, ignored);
  if (lock_ >= 0) close(lock_);
}

LockedFolder::LockedFolder(LockedFolder&& o) noexcept
    : path_(std::exchange(o.path_, {})), lock_(std::exchange(o.lock_, -1)) {}

LockedFolder& LockedFolder::operator=(LockedFolder&& o) noexcept {
  std::swap(path_, o.path_);
  std::swap(lock_, o.lock_);
  return *this;
}

}  // namespace weft::dist
