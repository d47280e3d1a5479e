#include "distributed/launch/locked_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <utility>
#include <vector>

#include "framework/base/str_cat.h"
#include "framework/io/mark.h"

namespace weft::dist {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kRandom = "XXXXXX";  // mkdtemp replaces it by letters and digits

// Locks a folder of this user that no living process has locked; returns its descriptor, or -1.
int lock(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  struct stat s {};
  if (fd >= 0 && fstat(fd, &s) == 0 && s.st_uid == geteuid() && flock(fd, LOCK_EX | LOCK_NB) == 0) return fd;
  if (fd >= 0) close(fd);
  return -1;
}

// Whether mkdtemp can have made a folder of this name.
bool has_form(std::string_view name, std::string_view prefix) {
  return name.starts_with(prefix) && name.size() == prefix.size() + kRandom.size() &&
         std::all_of(name.begin() + static_cast<ptrdiff_t>(prefix.size()), name.end(), isalnum);
}

// Removes a folder, its mark last.
void remove_marked(const fs::path& path) {
  const std::string name = path.filename();
  std::error_code ignored;
  std::vector<fs::path> content;
  for (fs::directory_iterator at(path, ignored), end; at != end; at.increment(ignored))
    if (io::marked_name(at->path().filename()) != name) content.push_back(at->path());
  for (const fs::path& p : content) fs::remove_all(p, ignored);
  fs::remove_all(path, ignored);
}

}  // namespace

void remove_left(const std::string& parent, std::string_view prefix, size_t keep) {
  std::error_code ignored;
  std::vector<std::pair<fs::file_time_type, fs::path>> left;
  for (fs::directory_iterator at(parent, ignored), end; at != end; at.increment(ignored)) {
    const fs::path& path = at->path();
    if (has_form(path.filename().string(), prefix) && io::has_mark(path, path.filename()))
      left.emplace_back(fs::last_write_time(path, ignored), path);
  }
  std::sort(left.begin(), left.end());
  for (size_t i = 0; i + keep < left.size(); ++i) {
    const int fd = lock(left[i].second);
    if (fd < 0) continue;
    remove_marked(left[i].second);
    close(fd);
  }
}

std::string temporary_parent() {
  const char* const parent = std::getenv("TMPDIR");
  return parent && *parent ? parent : "/tmp";
}

std::string new_folder(const std::string& parent, std::string_view prefix) {
  std::string path = str_cat(parent, "/", prefix, kRandom);
  if (!mkdtemp(path.data())) return "";
  if (io::set_mark(path, fs::path(path).filename())) return path;
  rmdir(path.c_str());
  return "";
}

LockedFolder quick_folder(std::string_view prefix, int64_t bytes) {
  constexpr const char* kShared = "/dev/shm";
  struct statvfs s {};
  if (access(kShared, W_OK) == 0 && statvfs(kShared, &s) == 0 &&
      static_cast<double>(s.f_bavail) * static_cast<double>(s.f_frsize) > static_cast<double>(bytes))
    if (LockedFolder folder(kShared, prefix); !folder.path().empty()) return folder;
  return LockedFolder(temporary_parent(), prefix);
}

LockedFolder::LockedFolder(const std::string& parent, std::string_view prefix) {
  remove_left(parent, prefix, 0);
  for (int i = 0; i < 10 && lock_ < 0; ++i) {  // another process may remove the folder before this one locks it
    path_ = new_folder(parent, prefix);
    lock_ = path_.empty() ? -1 : lock(path_);
    if (lock_ >= 0 && access(path_.c_str(), F_OK) != 0) close(std::exchange(lock_, -1));
  }
  if (lock_ < 0) path_.clear();
}

LockedFolder::~LockedFolder() {
  struct stat mine {
  }, now{};
  const bool same = lock_ >= 0 && fstat(lock_, &mine) == 0 && lstat(path_.c_str(), &now) == 0 &&
                    mine.st_dev == now.st_dev && mine.st_ino == now.st_ino;
  if (same) remove_marked(path_);  // another folder of this name is not ours
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
