#include "framework/io/mark.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string_view>

namespace weft::io {
namespace {

constexpr std::string_view kMark = ".weft-made-";

std::string path_of(const std::string& place, const std::string& name) {
  return place + "/" + std::string(kMark) + name;
}

}  // namespace

bool set_mark(const std::string& place, const std::string& name) {
  const int fd = ::open(path_of(place, name).c_str(), O_WRONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
  if (fd >= 0) ::close(fd);
  return fd >= 0;
}

bool has_mark(const std::string& place, const std::string& name) {
  struct stat st;
  return ::lstat(path_of(place, name).c_str(), &st) == 0 && S_ISREG(st.st_mode) && st.st_size == 0 &&
         st.st_uid == ::geteuid();
}

void remove_mark(const std::string& place, const std::string& name) {
  if (has_mark(place, name)) ::unlink(path_of(place, name).c_str());
}

std::string marked_name(const std::string& file) {
  return file.starts_with(kMark) ? file.substr(kMark.size()) : std::string();
}

}  // namespace weft::io
