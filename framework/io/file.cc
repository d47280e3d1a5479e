#include "framework/io/file.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <new>
#include <utility>

#include "framework/base/error.h"
#include "framework/base/switches.h"
#include "framework/io/file_internal.h"

namespace weft::io {
namespace internal {

void fail(int error, std::string_view what, const std::string& path) {
  Code code = Code::kFailedPrecondition;
  switch (error) {
    case ENOENT:
      code = Code::kNotFound;
      break;
    case EACCES:
    case EPERM:
    case EROFS:
      code = Code::kPermissionDenied;
      break;
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
    case EMFILE:
    case ENFILE:
    case ENOMEM:
      code = Code::kResourceExhausted;
      break;
    case EIO:
      code = Code::kDataLoss;
      break;
    default:
      break;
  }
  weft::internal::fail(code, str_cat("cannot ", what, " '", path, "': ", errno_text(error)));
}

// Raises the limit of open files to the highest one that this process may have. Systems often begin with a lower one.
static void raise_limit_of_files() {
  struct rlimit limit;
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  (void)::setrlimit(RLIMIT_NOFILE, &limit);
}

int open_or_fail(const std::string& path, int flags, std::string_view what, int mode) {
  const auto open = [&] {
    int fd;
    do fd = ::open(path.c_str(), flags | O_CLOEXEC, mode);
    while (fd < 0 && errno == EINTR);
    return fd;
  };
  int fd = open();
  if (fd < 0 && errno == EMFILE) raise_limit_of_files(), fd = open();
  if (fd < 0) fail(errno, what, path);
  return fd;
}

void need_regular(unsigned mode, std::string_view what, const std::string& path) {
  if (S_ISREG(mode)) return;
  const char* is = S_ISDIR(mode)                    ? "a folder"
                   : S_ISFIFO(mode)                 ? "a pipe"
                   : S_ISCHR(mode) || S_ISBLK(mode) ? "a device"
                                                    : "not a regular file";
  weft::internal::fail(Code::kInvalidArgument, str_cat("cannot ", what, " '", path, "': it is ", is, "; need a file"));
}

}  // namespace internal

namespace {

struct Closer {
  int fd;
  ~Closer() {
    if (fd >= 0) ::close(fd);
  }
};

/// Opens a regular file and returns its size in `size`. Everything else is refused; opening a pipe without
/// O_NONBLOCK would wait for a writer.
int open_regular(const std::string& path, int flags, const char* what, int64_t* size) {
  const int fd = internal::open_or_fail(path, flags | O_NONBLOCK, what, 0666);
  try {
    struct stat st;
    if (::fstat(fd, &st) != 0) internal::fail(errno, what, path);
    internal::need_regular(st.st_mode, what, path);
    *size = st.st_size;
  } catch (...) {
    ::close(fd);
    throw;
  }
  return fd;
}

}  // namespace

std::string errno_text(int error) {
  char buffer[256];
  return ::strerror_r(error, buffer, sizeof buffer);
}

std::string resolve_path(const std::string& path) { return weft::internal::in_working_folder(path); }

std::string base_name(const std::string& path) {
  size_t end = path.find_last_not_of('/');
  if (end == std::string::npos) return path.empty() ? "" : "/";
  size_t slash = path.find_last_of('/', end);
  size_t begin = slash == std::string::npos ? 0 : slash + 1;
  return path.substr(begin, end + 1 - begin);
}

std::string folder_of(const std::string& path) {
  size_t end = path.find_last_not_of('/');
  size_t slash = end == std::string::npos ? std::string::npos : path.find_last_of('/', end);
  if (slash == std::string::npos) return !path.empty() && path[0] == '/' ? "/" : ".";
  size_t last = path.find_last_not_of('/', slash);
  return last == std::string::npos ? "/" : path.substr(0, last + 1);
}

bool exists(const std::string& path) {
  struct stat st;
  return ::stat(path.c_str(), &st) == 0;
}

bool is_folder(const std::string& path) {
  struct stat st;
  return ::stat(path.c_str(), &st) == 0 && S_ISDIR(st.st_mode);
}

bool is_in_memory(const std::string& path) {
  struct statfs fs;
  return ::statfs(path.c_str(), &fs) == 0 && (fs.f_type == TMPFS_MAGIC || fs.f_type == RAMFS_MAGIC);
}

int64_t file_size(const std::string& path) {
  struct stat st;
  if (::stat(path.c_str(), &st) != 0) internal::fail(errno, "read", path);
  return st.st_size;
}

std::vector<std::string> list_folder(const std::string& path) {
  DIR* dir = ::opendir(path.c_str());
  if (!dir) internal::fail(errno, "list folder", path);
  std::vector<std::string> names;
  while (dirent* entry = ::readdir(dir)) {
    std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(std::move(name));
  }
  ::closedir(dir);
  std::sort(names.begin(), names.end());
  return names;
}

void make_folders(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) internal::fail(error.value(), "create folder", path);
}

void remove_all(const std::string& path) {
  std::error_code error;
  std::filesystem::remove_all(path, error);
  if (error) internal::fail(error.value(), "remove", path);
}

std::string read_file(const std::string& path, int64_t max_bytes) {
  int64_t size = 0;
  Closer file{open_regular(path, O_RDONLY, "read", &size)};
  const auto check_size = [&](int64_t bytes) {
    WEFT_CHECK_AS(kResourceExhausted, bytes <= max_bytes, "cannot read '", path, "': it is larger than ", max_bytes,
                  " bytes");
  };
  check_size(size);
  // The system may promise more memory than it has, and then end the process that uses the memory.
  const int64_t memory = int64_t{::sysconf(_SC_PHYS_PAGES)} * ::sysconf(_SC_PAGESIZE);
  WEFT_CHECK_AS(kResourceExhausted, size <= memory, "cannot read '", path, "': it has ", size,
                " bytes, and the machine has ", memory, " bytes of memory");
  std::string out;
  try {
    out.reserve(size + 4097);
  } catch (const std::bad_alloc&) {
    WEFT_CHECK_AS(kResourceExhausted, false, "cannot read '", path, "': there is no memory for its ", size, " bytes");
  }
  // Files in /proc and similar report size 0: read to the end whatever stat reported.
  for (;;) {
    check_size(static_cast<int64_t>(out.size()));
    size_t at = out.size();
    out.resize(std::max<size_t>(at + 4096, std::min<int64_t>(size + 1, int64_t{1} << 40)));
    ssize_t n = ::read(file.fd, out.data() + at, out.size() - at);
    int error = errno;
    out.resize(at + std::max<ssize_t>(n, 0));
    if (n == 0) return out;
    if (n < 0 && error != EINTR) internal::fail(error, "read", path);
  }
}

int open_for_update(const std::string& path, int flags) {
  int64_t size;
  return open_regular(path, O_RDWR | O_CREAT | flags, "write", &size);
}

MappedFile::MappedFile(const std::string& path, bool reads) : path_(path) {
  Closer file{open_regular(path, O_RDONLY, "read", &size_)};
  if (size_ > 0) {
    void* p = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, file.fd, 0);
    if (p == MAP_FAILED) internal::fail(errno, "map", path);
    data_ = static_cast<const std::byte*>(p);
  }
  if (reads) fd_ = std::exchange(file.fd, -1);
}

MappedFile::~MappedFile() {
  if (data_) ::munmap(const_cast<std::byte*>(data_), size_);
  if (fd_ >= 0) ::close(fd_);
}

void MappedFile::read(int64_t begin, std::span<std::byte> to) const {
  constexpr size_t kPiece = size_t{1} << 30;
  WEFT_BUG_IF(fd_ < 0 || begin < 0 || begin > size_ - std::ssize(to), path_, ": read of ", to.size(), " bytes from ",
              begin, " of ", size_);
  while (!to.empty()) {
    const ssize_t n = ::pread(fd_, to.data(), std::min(to.size(), kPiece), begin);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) internal::fail(errno, "read", path_);
    if (n == 0) {
      struct stat now = {};
      (void)::fstat(fd_, &now);
      weft::internal::fail(
          Code::kDataLoss,
          str_cat(path_, ": the file had ", size_, " bytes when it was opened and has ",
                  static_cast<int64_t>(now.st_size), " now; need a file that no ", "program changes while it is read"));
    }
    to = to.subspan(static_cast<size_t>(n));
    begin += n;
  }
}

void MappedFile::advise(Advice advice) const {
  constexpr int kAdvice[] = {MADV_SEQUENTIAL, MADV_RANDOM};
  // The advice is only a hint: a kernel that refuses it changes nothing.
  if (data_) (void)::madvise(const_cast<std::byte*>(data_), size_, kAdvice[static_cast<int>(advice)]);
}

void MappedFile::release(int64_t begin, int64_t end) const {
  constexpr int64_t kPage = 4096;
  begin = (begin + kPage - 1) / kPage * kPage;
  end = end / kPage * kPage;
  if (begin < end) (void)::madvise(const_cast<std::byte*>(data_) + begin, end - begin, MADV_DONTNEED);
}

}  // namespace weft::io
