#include "distributed/comm/store.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <sstream>
#include <thread>

#include "framework/base/error.h"

namespace weft::dist {

FolderStore::FolderStore(std::string folder) : folder_(std::move(folder)) {
  WEFT_CHECK_AS(kUnavailable, mkdir(folder_.c_str(), 0700) == 0 || errno == EEXIST, "store: cannot make the folder ",
                folder_, ": ", std::strerror(errno));
}

std::string FolderStore::path_of(const std::string& key) const {
  std::string name = key;
  std::replace(name.begin(), name.end(), '/', '.');
  return folder_ + "/" + name;
}

// Does not use AtomicFile: the store need not survive a crash, and fsync would dominate the start time.
void FolderStore::set(const std::string& key, const std::string& value) {
  static std::atomic<int> files{0};
  const std::string path = path_of(key), temporary = str_cat(path, ".tmp-", getpid(), "-", ++files);
  errno = 0;
  const bool written = static_cast<bool>(std::ofstream(temporary) << value << std::flush);
  const bool set = written && std::rename(temporary.c_str(), path.c_str()) == 0;
  const int reason = errno;
  if (!set) unlink(temporary.c_str());
  WEFT_CHECK_AS(kUnavailable, set, "store: cannot write ", path, ": ", std::strerror(reason));
}

void FolderStore::remove(const std::string& key) { unlink(path_of(key).c_str()); }

std::optional<std::string> FolderStore::find(const std::string& key) const {
  std::ifstream file(path_of(key));
  if (!file) return {};
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

void FolderStore::check() {
  if (const std::optional<std::string> cause = find(kEnded)) throw Error(Code::kAborted, *cause);
}

std::string FolderStore::get(const std::string& key, Deadline deadline) {
  auto pause = std::chrono::microseconds(200);
  while (true) {
    if (std::optional<std::string> value = find(key)) return *std::move(value);
    check();
    WEFT_CHECK_AS(kDeadlineExceeded, std::chrono::steady_clock::now() < deadline, "store: no process has set ", key,
                  " before the deadline");
    std::this_thread::sleep_for(pause);
    pause = std::min(2 * pause, std::chrono::microseconds(10000));
  }
}

}  // namespace weft::dist
