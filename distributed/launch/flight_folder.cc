#include "distributed/launch/flight_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <utility>

#include "framework/dispatch/flight.h"

namespace weft::dist {
namespace {

namespace fs = std::filesystem;

constexpr const char* kShared = "/dev/shm";
constexpr int64_t kPlanBytes = 4 << 20;  // of a rank, about

constexpr std::string_view kPrefix = "weft-recorder-";  // of folders that their launcher removes
constexpr std::string_view kKept = "weft-flight-";      // of copies that stay

// A new folder in `parent`; empty if it cannot be made.
std::string new_folder(const std::string& parent, std::string_view prefix) {
  std::string path = str_cat(parent, "/", prefix, "XXXXXX");
  return mkdtemp(path.data()) ? path : "";
}

// The descriptor of a folder of this user that no living launcher has locked; -1 if it is not one.
int lock(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  struct stat s {};
  if (fd >= 0 && fstat(fd, &s) == 0 && s.st_uid == geteuid() && flock(fd, LOCK_EX | LOCK_NB) == 0) return fd;
  if (fd >= 0) close(fd);
  return -1;
}

// Removes what launchers that were killed have left in `parent`: the kernel has released their locks.
void remove_left(const std::string& parent) {
  std::error_code ignored;
  for (fs::directory_iterator at(parent, ignored), end; at != end; at.increment(ignored)) {
    if (!at->path().filename().string().starts_with(kPrefix)) continue;
    const int fd = lock(at->path());
    if (fd < 0) continue;
    fs::remove_all(at->path(), ignored);
    close(fd);
  }
}

bool has_room(const char* folder, int64_t bytes) {
  struct statvfs s {};
  if (access(folder, W_OK) != 0 || statvfs(folder, &s) != 0) return false;
  return static_cast<double>(s.f_bavail) * static_cast<double>(s.f_frsize) > static_cast<double>(bytes);
}

}  // namespace

std::string temporary_parent() {
  const char* const parent = std::getenv("TMPDIR");
  return parent && *parent ? parent : "/tmp";
}

FlightFolder::FlightFolder(int processes) {
  if (const char* const given = std::getenv(flight::kFolderVariable); given && *given) {
    path_ = given;
    std::error_code ignored;
    fs::create_directories(path_, ignored);
    return;
  }
  own_ = true;
  for (const std::string& parent : {std::string(kShared), temporary_parent()}) remove_left(parent);
  const auto make = [&](const std::string& parent) {
    for (int i = 0; i < 10 && lock_ < 0; ++i) {  // another launcher may remove it before it is locked
      path_ = new_folder(parent, kPrefix);
      lock_ = path_.empty() ? -1 : lock(path_);
      if (lock_ >= 0 && access(path_.c_str(), F_OK) != 0) close(std::exchange(lock_, -1));
    }
    if (lock_ < 0) path_.clear();
  };
  if (has_room(kShared, 2 * processes * (flight::kRingBytes + kPlanBytes))) make(kShared);
  if (path_.empty()) make(temporary_parent());
}

FlightFolder::~FlightFolder() {
  std::error_code ignored;
  if (own_ && !path_.empty()) fs::remove_all(path_, ignored);
  if (lock_ >= 0) close(lock_);
}

std::optional<diagnose::Diagnosis> FlightFolder::diagnose(const diagnose::DiagnosisOptions& options) const {
  try {
    if (path_.empty() || fs::is_empty(path_)) return {};
    return diagnose::diagnose(diagnose::read_job(path_), options);
  } catch (const std::exception&) {  // it does not hide the failure of the job
    return {};
  }
}

std::string FlightFolder::keep(const std::string& parent) {
  try {
    if (path_.empty() || fs::is_empty(path_)) return "";
    if (!own_) return path_;
    std::string to = parent.empty() ? "" : new_folder(parent, kKept);
    if (to.empty()) to = new_folder(temporary_parent(), kKept);
    if (to.empty()) return "";
    fs::copy(path_, to, fs::copy_options::recursive);
    return to;
  } catch (const std::exception&) {
    return "";
  }
}

}  // namespace weft::dist
