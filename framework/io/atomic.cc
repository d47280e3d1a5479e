// AtomicFile, AtomicFolder and FileLock of file.h. The writer of a temporary folder holds a lock (flock) on it. The
// kernel releases the lock when the process ends, so remove_leftovers() can recognise temporaries of dead processes. A
// temporary folder has its mark (mark.h) beside it from the beginning until it has its final name. Files with data have
// no locks: on SMB, a lock on a file refuses the writes of other processes.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <random>
#include <utility>

#include "framework/base/error.h"
#include "framework/io/file.h"
#include "framework/io/file_internal.h"
#include "framework/io/mark.h"

namespace weft::io {
namespace {

// Suffixes of the names of a file or folder that is being written, and of a folder that is being replaced.
constexpr std::string_view kTemporary = ".tmp-", kReplaced = ".old-";
constexpr std::string_view kProcess = "process ";  // the beginning of a lock file; the number of the process follows

std::string plain(const std::string& path) {
  WEFT_CHECK(!path.empty() && base_name(path) != "/", "cannot write '", path, "': need the name of a file or folder");
  size_t end = path.find_last_not_of('/');
  return path.substr(0, end + 1);
}

std::string unique_name(const std::string& path, std::string_view mark) {
  // In containers on several hosts, the number of the process repeats. A file of another run must not have the name
  // that a process of this run writes to.
  static std::atomic<int64_t> count{[] {
    std::random_device random;
    return static_cast<int64_t>(uint64_t{random()} << 32 | random()) & INT64_MAX / 2;
  }()};
  return str_cat(path, mark, static_cast<int64_t>(::getpid()), "-", count.fetch_add(1));
}
bool mark(const std::string& path) { return set_mark(folder_of(path), base_name(path)); }
bool is_marked(const std::string& path) { return has_mark(folder_of(path), base_name(path)); }
void unmark(const std::string& path) { remove_mark(folder_of(path), base_name(path)); }
void remove_marked(const std::string& path) {
  remove_all(path);
  unmark(path);
}

std::string temporary_name(const std::string& path) { return unique_name(path, kTemporary); }

/// The path in a name that unique_name() made; "" for other names.
std::string name_before(const std::string& name, std::string_view mark) {
  size_t at = name.rfind(mark);
  if (at == std::string::npos) return "";
  std::string_view tail = std::string_view(name).substr(at + mark.size());
  size_t dash = tail.find('-');
  const bool unique = dash != std::string_view::npos && dash > 0 && dash + 1 < tail.size() &&
                      tail.find_first_not_of("0123456789-") == std::string_view::npos &&
                      tail.find('-', dash + 1) == tail.npos;
  return unique ? name.substr(0, at) : "";
}

/// Locks a new temporary folder; false if a cleaner removed it in between.
bool lock_fresh(int fd) {
  if (::flock(fd, LOCK_EX | LOCK_NB) != 0) return errno != EWOULDBLOCK;
  struct stat st;
  return ::fstat(fd, &st) == 0 && st.st_nlink > 0;
}

void sync_path(const std::string& path, bool folder) {
  int fd = internal::open_or_fail(path, folder ? O_RDONLY | O_DIRECTORY : O_RDONLY, "sync", 0);
  int error = ::fsync(fd) == 0 ? 0 : errno;
  ::close(fd);
  // Some file systems cannot sync a folder; its files are safe nevertheless.
  if (error && !(folder && error == EINVAL)) internal::fail(error, "sync", path);
}

void sync_tree(const std::string& folder) {
  for (const std::string& name : list_folder(folder)) {
    std::string path = folder + "/" + name;
    struct stat st;
    if (::lstat(path.c_str(), &st) != 0) internal::fail(errno, "sync", path);
    if (S_ISDIR(st.st_mode)) sync_tree(path);
    if (S_ISREG(st.st_mode)) sync_path(path, false);
  }
  sync_path(folder, true);
}

// Renames to a name that nobody has. Returns an error number, 0 for none. File systems that cannot refuse a name in the
// same call are asked before it.
int rename_to_new(const std::string& from, const std::string& to) {
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) return 0;
  if (errno != EINVAL && errno != ENOSYS) return errno;
  if (exists(to)) return EEXIST;
  return ::rename(from.c_str(), to.c_str()) == 0 ? 0 : errno;
}

int rename_over(const std::string& from, const std::string& to) {
  return ::rename(from.c_str(), to.c_str()) == 0 ? 0 : errno;
}

int rename_as(Existing existing, const std::string& from, const std::string& to) {
  const int error = existing == Existing::kReplace ? rename_over(from, to) : rename_to_new(from, to);
  WEFT_CHECK(existing == Existing::kReplace || error != EEXIST, to, ": exists; need a new name");
  return error;
}

}  // namespace

void internal::write_all(int fd, std::span<const std::byte> bytes, int64_t offset, const std::string& path) {
  // One write() moves at most 2 GiB.
  constexpr size_t kPiece = size_t{1} << 30;
  while (!bytes.empty()) {
    ssize_t n = ::pwrite(fd, bytes.data(), std::min(bytes.size(), kPiece), offset);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) fail(n < 0 ? errno : EIO, "write", path);
    bytes = bytes.subspan(n);
    offset += n;
  }
}

std::string internal::final_path(const std::string& temporary) { return name_before(temporary, kTemporary); }

AtomicFile::AtomicFile(const std::string& path, const std::string& memory) : path_(plain(path)) {
  struct stat st;
  const bool replaces = ::stat(path_.c_str(), &st) == 0;
  if (replaces) internal::need_regular(st.st_mode, "write", path_);
  if (!memory.empty()) {
    fd_ = internal::open_or_fail(memory, O_WRONLY, "write", 0);
    for (temp_ = temporary_name(path_); ::symlink(memory.c_str(), temp_.c_str()) != 0; temp_ = temporary_name(path_)) {
      const int error = errno;
      if (error == EEXIST) continue;
      ::close(fd_);
      internal::fail(error, "write", path_);
    }
    return;
  }
  for (;;) {
    temp_ = temporary_name(path_);
    fd_ = ::open(temp_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, replaces ? 0600 : 0666);
    if (fd_ >= 0 && replaces) ::fchmod(fd_, st.st_mode & 07777);  // a file that others may not read stays so
    if (fd_ >= 0) return;
    if (errno != EEXIST && errno != EINTR) internal::fail(errno, "write", path_);
  }
}

AtomicFile::~AtomicFile() {
  if (fd_ < 0) return;
  ::unlink(temp_.c_str());
  ::close(fd_);
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  internal::write_all(fd_, bytes, size_, path_);
  size_ += bytes.size();
}

void AtomicFile::rewrite(int64_t offset, std::span<const std::byte> bytes) {
  WEFT_BUG_IF(offset < 0 || offset + static_cast<int64_t>(bytes.size()) > size_, "rewrite beyond the end of ", path_);
  internal::write_all(fd_, bytes, offset, path_);
}

void AtomicFile::resize(int64_t bytes) {
  // A byte shows whether the file system writes at an offset: a store of objects may only append. It is one of the
  // first, which only the owner of this object writes: at the end, it could reach an NFS server after the data of
  // another host. After ftruncate(), an NFS client writes this byte alone, and not the rest of its page.
  constexpr std::byte kZero{0};
  constexpr int64_t kProbed = 8;
  ssize_t done;
  do {
    done = ::ftruncate(fd_, bytes) == 0 ? 1 : -1;
    if (done == 1 && bytes > 0) done = ::pwrite(fd_, &kZero, 1, std::min(bytes, kProbed) - 1);
  } while (done < 0 && errno == EINTR);
  if (done == 1) {
    size_ = bytes;
    return;
  }
  const int error = done < 0 ? errno : EIO;
  const bool appends = error == EINVAL || error == EOPNOTSUPP || error == ENOSYS || error == ESPIPE;
  WEFT_CHECK_AS(kFailedPrecondition, !appends, "cannot write '", path_,
                "': its file system does not write at an offset (", errno_text(error),
                "); need one that does, such as a local disk or NFS");
  internal::fail(error, "write", path_);
}

void AtomicFile::commit(Existing existing) {
  WEFT_BUG_IF(fd_ < 0, "second commit of ", path_);
  if (::fsync(fd_) != 0) internal::fail(errno, "write", path_);
  if (const int error = rename_as(existing, temp_, path_)) internal::fail(error, "write", path_);
  ::close(fd_);
  fd_ = -1;
  sync_path(folder_of(path_), true);
}

void write_file_atomic(const std::string& path, std::string_view bytes) {
  AtomicFile file(path);
  file.write(bytes);
  file.commit();
}

void check_file(const std::string& path) { const AtomicFile probe(path); }

void check_folder(const std::string& path) {
  if (!exists(path)) {
    const AtomicFolder probe(path);
  } else if (!is_folder(path) || ::access(path.c_str(), W_OK | X_OK) != 0) {
    internal::fail(is_folder(path) ? errno : ENOTDIR, "write into folder", path);
  }
}

AtomicFolder::AtomicFolder(const std::string& path) : path_(plain(path)) {
  for (;;) {
    temp_ = temporary_name(path_);
    if (exists(temp_)) continue;
    mark(temp_);
    const auto fail = [&](int error) {
      unmark(temp_);
      internal::fail(error, "create folder", path_);
    };
    if (::mkdir(temp_.c_str(), 0777) != 0) {
      if (errno != EEXIST) fail(errno);
      unmark(temp_);
      continue;
    }
    lock_ = ::open(temp_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (lock_ < 0 && errno != ENOENT) fail(errno);
    if (lock_ >= 0 && lock_fresh(lock_)) return;
    if (lock_ >= 0) ::close(lock_);
  }
}

AtomicFolder::~AtomicFolder() {
  if (lock_ < 0) return;
  try {
    remove_marked(temp_);
  } catch (const Error&) {  // remove_leftovers() tries again
  }
  ::close(lock_);
}

void AtomicFolder::commit(Existing existing) {
  WEFT_BUG_IF(lock_ < 0, "second commit of ", path_);
  sync_tree(temp_);
  if (const int error = rename_as(existing, temp_, path_)) {
    if (error != ENOTEMPTY && error != EEXIST) internal::fail(error, "create folder", path_);
    // A folder of that name exists: swap the two, so that the name always refers to a complete folder.
    if (::renameat2(AT_FDCWD, temp_.c_str(), AT_FDCWD, path_.c_str(), RENAME_EXCHANGE) != 0) swap_by_renames();
    remove_all(temp_);
  }
  unmark(temp_);
  ::close(lock_);
  lock_ = -1;
  sync_path(folder_of(path_), true);
}

// For file systems that cannot exchange two names. If the process ends between the renames, restore_folders() gives the
// old folder its name back; the lock on the old folder shows that a process is at work.
void AtomicFolder::swap_by_renames() {
  const std::string old = unique_name(path_, kReplaced);
  const int lock = internal::open_or_fail(path_, O_RDONLY | O_DIRECTORY, "replace folder", 0);
  (void)::flock(lock, LOCK_EX | LOCK_NB);
  mark(old);
  int error = rename_over(path_, old);
  if (!error && (error = rename_over(temp_, path_))) (void)rename_over(old, path_);
  if (!error) error = rename_over(old, temp_);
  if (!exists(old)) unmark(old);
  ::close(lock);
  if (error) internal::fail(error, "replace folder", path_);
}

void restore_folders(const std::string& folder) {
  for (const std::string& name : list_folder(folder)) {
    const std::string before = name_before(name, kReplaced), path = folder + "/" + name;
    if (before.empty() || !is_marked(path)) continue;
    const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) continue;
    // A file system without locks: nothing can be known of other processes.
    const bool at_work = ::flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    if (!at_work && ::rename(path.c_str(), str_cat(folder, "/", before).c_str()) != 0 &&
        (errno == ENOTEMPTY || errno == EEXIST))
      remove_folder_at_once(path);  // the new folder has the name
    if (!exists(path)) unmark(path);
    ::close(fd);
  }
}

// FileLock does not use flock(): that has no query, and a lock taken for a moment instead would refuse other processes.
FileLock::FileLock(const std::string& path, const std::string& what) : path_(path), what_(what) {
  struct stat st;
  const bool link = ::lstat(path.c_str(), &st) == 0 && S_ISLNK(st.st_mode);
  WEFT_CHECK(!link, "cannot lock '", path, "': it is a symbolic link; need a file");
  fd_ = open_for_update(path, O_NOFOLLOW);
  struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
  // A file system without locks: nothing can be known of other processes.
  const bool held = ::fcntl(fd_, F_OFD_SETLK, &whole) != 0 && (errno == EAGAIN || errno == EACCES);
  char bytes[32] = {};
  const ssize_t n = ::pread(fd_, bytes, sizeof bytes, 0);
  const std::string holder(bytes, std::max<ssize_t>(n, 0));
  const bool own = holder.empty() || (holder.size() > kProcess.size() && holder.starts_with(kProcess) &&
                                      holder.find_first_not_of("0123456789", kProcess.size()) == holder.npos);
  if (held || !own) {
    ::close(fd_);
    weft::internal::fail(
        Code::kFailedPrecondition,
        own ? str_cat(what, " is in use by ", holder.empty() ? "another process" : holder,
                      "; need a path that no other process uses")
            : str_cat("cannot lock '", path, "': it is not a lock file of Weft; move it away, or use another folder"));
  }
  const std::string process = str_cat(kProcess, static_cast<int64_t>(::getpid()));
  // The text is for people, for errors, and the proof that the file is a lock.
  if (::ftruncate(fd_, 0) == 0) (void)!::pwrite(fd_, process.data(), process.size(), 0);
}

bool FileLock::is_replaced() const {
  struct stat mine, now;
  return ::lstat(path_.c_str(), &now) == 0 &&
         (::fstat(fd_, &mine) != 0 || mine.st_dev != now.st_dev || mine.st_ino != now.st_ino);
}

void FileLock::renew() {
  const bool replaced = is_replaced();
  if (struct stat st; !replaced && ::lstat(path_.c_str(), &st) == 0) return;
  FileLock next(path_, what_);  // throws if another process holds it
  WEFT_CHECK_AS(kFailedPrecondition, !replaced, what_,
                " was removed while this process used it, and another process has used it since; need a path that no "
                "other process uses");
  std::swap(fd_, next.fd_);
}

FileLock::~FileLock() { ::close(fd_); }

bool FileLock::is_held(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) return false;
  struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
  const bool held = ::fcntl(fd, F_OFD_GETLK, &whole) == 0 && whole.l_type != F_UNLCK;
  ::close(fd);
  return held;
}

void remove_folder_at_once(const std::string& path) {
  const std::string temp = temporary_name(plain(path));
  mark(temp);
  if (::rename(path.c_str(), temp.c_str()) != 0) {
    const int error = errno;
    unmark(temp);
    internal::fail(error, "remove", path);
  }
  remove_marked(temp);
}

int remove_leftovers(const std::string& folder) {
  restore_folders(folder);
  int removed = 0;
  for (const std::string& name : list_folder(folder)) {
    const std::string marked = marked_name(name), path = folder + "/" + marked;
    if (name_before(marked, kTemporary).empty() && name_before(marked, kReplaced).empty()) continue;
    const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0 && errno == ENOENT) unmark(path);
    if (fd < 0) continue;
    const bool left = !name_before(marked, kTemporary).empty() && ::flock(fd, LOCK_EX | LOCK_NB) == 0;
    if (left && is_marked(path)) try {
        remove_marked(path);
        ++removed;
      } catch (const Error&) {  // the next call tries again
      }
    ::close(fd);
  }
  return removed;
}

}  // namespace weft::io
