#include "distributed/control/service/journal.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "framework/base/error.h"
#include "framework/base/one_line.h"
#include "framework/io/checksum.h"
#include "framework/io/file.h"

namespace weft::control {
namespace {

// A record consists of a size, a checksum of the size, a checksum of the bytes, and `size` bytes. The first record is
// the title.
constexpr size_t kHead = 16;

uint32_t check_of(uint32_t size) {
  return static_cast<uint32_t>(io::checksum(std::string_view(reinterpret_cast<const char*>(&size), sizeof size)));
}

/// The size in the head at `at`; false if the head is incomplete or damaged.
bool read_size(const std::string& file, size_t at, uint32_t& size) {
  if (file.size() - at < kHead) return false;
  uint32_t check = 0;
  std::memcpy(&size, file.data() + at, 4);
  std::memcpy(&check, file.data() + at + 4, 4);
  return check == check_of(size);
}

std::string framed(const std::string& bytes) {
  const auto size = static_cast<uint32_t>(bytes.size());
  const uint32_t check = check_of(size);
  const uint64_t sum = io::checksum(bytes);
  std::string out(kHead, '\0');
  std::memcpy(out.data(), &size, 4);
  std::memcpy(out.data() + 4, &check, 4);
  std::memcpy(out.data() + 8, &sum, 8);
  return out + bytes;
}

/// Reads the record at `at`, and moves `at` to its end; false at an incomplete or damaged record.
bool next_record(const std::string& file, size_t& at, std::string& bytes) {
  uint32_t size = 0;
  uint64_t sum = 0;
  if (!read_size(file, at, size) || file.size() - at - kHead < size) return false;
  std::memcpy(&sum, file.data() + at + 8, 8);
  bytes = file.substr(at + kHead, size);
  if (io::checksum(bytes) != sum) return false;
  at += kHead + size;
  return true;
}

/// Whether the record at `at`, which next_record() refuses, can be a last record that was not written completely.
bool is_incomplete(const std::string& file, size_t at) {
  if (file.find_first_not_of('\0', at) == file.npos) return true;  // the host crashed before it wrote the bytes
  uint32_t size = 0;
  if (file.size() - at < kHead) return true;
  return read_size(file, at, size) && file.size() - at - kHead <= size;
}

/// Reports the bytes after the end of the last complete record, if there are any.
void report_incomplete(const std::string& path, const std::string& file, size_t end, const std::string& what) {
  if (end == file.size()) return;
  internal::warn(str_cat("the journal ", one_line(path), " ends in ", what, ", which is incomplete: its ",
                         file.size() - end, " bytes are left out"));
}

/// Commits the records from `at` on. Returns the end of the last complete record.
size_t commit_records(const std::string& path, const std::string& file, size_t at, const Journal::Commit& commit) {
  std::string bytes;
  int64_t number = 1;
  for (size_t begin = at; next_record(file, at, bytes); begin = at, ++number) {
    const std::string problem = commit(bytes);
    WEFT_CHECK_AS(kDataLoss, problem.empty(), "the journal ", one_line(path),
                  " has a record that does not fit, at byte ", begin, ": ", problem);
  }
  WEFT_CHECK_AS(kDataLoss, is_incomplete(file, at), "the journal ", one_line(path), " is damaged at byte ", at,
                "; need the file that the service wrote");
  report_incomplete(path, file, at, str_cat("record ", number));
  return at;
}

}  // namespace

std::string read_journal(const std::string& path, const Journal::Commit& commit) {
  const std::string file = io::read_file(path);
  std::string title;
  size_t at = 0;
  WEFT_CHECK_AS(kDataLoss, next_record(file, at, title), "the file ", one_line(path),
                " is no journal of a coordination service");
  commit_records(path, file, at, commit);
  return title;
}

Journal::Journal(const std::string& path, const std::string& title, const Commit& commit, bool keeps_history,
                 const std::string& earlier)
    : path_(path), title_(title), keeps_history_(keeps_history) {
  fd_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  WEFT_CHECK_AS(kUnavailable, fd_ >= 0, "the journal ", one_line(path), " cannot be opened: ", std::strerror(errno));
  try {
    struct stat s {};
    WEFT_CHECK_AS(kDataLoss, ::fstat(fd_, &s) == 0 && S_ISREG(s.st_mode), "the journal ", one_line(path),
                  " is no regular file; need another path");
    WEFT_CHECK_AS(kFailedPrecondition, ::flock(fd_, LOCK_EX | LOCK_NB) == 0, "the journal ", one_line(path),
                  " is in use by another coordination service; need one file for each");
    const std::string file = io::read_file(path);
    size_t at = 0;
    std::string bytes;
    const bool has_title = next_record(file, at, bytes);
    if (has_title && !earlier.empty() && bytes.starts_with(earlier)) {
      at = 0;
    } else if (has_title) {
      WEFT_CHECK_AS(kFailedPrecondition, bytes == title, "the journal ", one_line(path), " is '", one_line(bytes, 300),
                    "'; need '", one_line(title, 300), "'");
      const size_t begin = at;
      at = commit_records(path, file, at, commit);
      continued_ = at > begin;
    } else {
      // A journal of this run may lack the end of its title. Another file is left as it is.
      WEFT_CHECK_AS(kDataLoss, framed(title).starts_with(file), "the journal ", one_line(path),
                    " is no journal of a coordination service; need another path");
      report_incomplete(path, file, 0, "its title");
    }
    WEFT_CHECK_AS(kUnavailable, ::ftruncate(fd_, static_cast<off_t>(at)) == 0 && ::lseek(fd_, 0, SEEK_END) >= 0,
                  "the journal ", one_line(path), " cannot be written: ", std::strerror(errno));
    size_ = static_cast<int64_t>(at);
    if (at == 0) write(framed(title));
  } catch (...) {
    ::close(fd_);
    throw;
  }
}

Journal::~Journal() {
  if (fd_ >= 0) ::close(fd_);
}

void Journal::write(const std::string& bytes) {
  if (fd_ < 0) return;
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t n = ::write(fd_, bytes.data() + done, bytes.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      internal::warn(str_cat("the coordination service cannot write its journal ", one_line(path_), ": ",
                             std::strerror(errno), "; it cannot be restarted any more"));
      // A service that may have forgotten a record does not continue. A history keeps its complete records.
      (void)!::ftruncate(fd_, keeps_history_ ? static_cast<off_t>(size_) : 0);
      ::close(fd_);
      fd_ = -1;
      return;
    }
    done += static_cast<size_t>(n);
  }
  size_ += static_cast<int64_t>(bytes.size());
}

void Journal::append(const std::string& record) { write(framed(record)); }

void Journal::rewrite(const std::vector<std::string>& records) {
  if (fd_ < 0) return;
  std::string bytes = framed(title_);
  for (const std::string& record : records) bytes += framed(record);
  // The new file is locked before it gets the name.
  const std::string temp = str_cat(path_, ".new-", getpid());
  const int old = fd_;
  fd_ = ::open(temp.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  const bool made = fd_ >= 0;
  size_ = 0;
  if (made && ::flock(fd_, LOCK_EX | LOCK_NB) == 0) write(bytes);
  if (fd_ >= 0 && size_ > 0 && ::rename(temp.c_str(), path_.c_str()) == 0) {
    ::close(old);
  } else {
    if (fd_ >= 0) ::close(fd_);
    if (made) ::unlink(temp.c_str());
    fd_ = old;
    size_ = ::lseek(old, 0, SEEK_END);
  }
  next_size_ = std::max(next_size_, 4 * size_);
}

}  // namespace weft::control
