// Files and folders: whole reads, read-only mapping, and writes that happen completely or not at all. Every failure
// throws weft::Error with one sentence that names the path and the system's reason.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace weft::io {

/// Makes a relative path of a flag absolute against BUILD_WORKING_DIRECTORY (where `bazel run` was typed); returns
/// others unchanged.
std::string resolve_path(const std::string& path);

/// The last part of a path: "c" of "a/b/c".
std::string base_name(const std::string& path);
/// The folder of a path: "a/b" of "a/b/c", "." of "c".
std::string folder_of(const std::string& path);

bool exists(const std::string& path);
bool is_folder(const std::string& path);
/// Whether the file system of a path is in the memory of this host (tmpfs, ramfs). False if the path does not exist.
bool is_in_memory(const std::string& path);
int64_t file_size(const std::string& path);
/// Names in a folder, sorted, without "." and "..".
std::vector<std::string> list_folder(const std::string& path);
/// Creates a folder and its missing parents.
void make_folders(const std::string& path);
/// Removes a file or a whole folder; it is not an error if there is none.
void remove_all(const std::string& path);

/// The whole content of a regular file; throws if the file is larger than `max_bytes`.
std::string read_file(const std::string& path, int64_t max_bytes = int64_t{1} << 40);

/// Opens a regular file, made if there is none, for reading and writing, with further flags of open(2). Returns its
/// descriptor; the caller closes it.
int open_for_update(const std::string& path, int flags = 0);

/// A file mapped read-only. Can be moved, not copied. If another program cuts the file meanwhile, an access to bytes()
/// behind its new end ends this process by SIGBUS, and read() throws.
class MappedFile {
 public:
  enum class Advice { kSequential, kRandom };

  MappedFile() = default;
  /// `reads`: the file stays open for read().
  explicit MappedFile(const std::string& path, bool reads = false);
  MappedFile(MappedFile&& o) noexcept { swap(o); }
  MappedFile& operator=(MappedFile&& o) noexcept {
    swap(o);
    return *this;
  }
  ~MappedFile();

  const std::string& path() const { return path_; }
  std::span<const std::byte> bytes() const { return {data_, static_cast<size_t>(size_)}; }
  /// The size when the file was opened.
  int64_t size() const { return size_; }
  /// Copies the bytes from `begin` on, without the map. Thread-safe. Throws DataLoss, with the size of the file when it
  /// was opened and its size now, if another program has cut it.
  void read(int64_t begin, std::span<std::byte> to) const;
  void advise(Advice advice) const;
  /// Unmaps the whole pages of these bytes until they are read again.
  void release(int64_t begin, int64_t end) const;

 private:
  void swap(MappedFile& o) {
    path_.swap(o.path_);
    std::swap(data_, o.data_);
    std::swap(size_, o.size_);
    std::swap(fd_, o.fd_);
  }
  std::string path_;
  const std::byte* data_ = nullptr;
  int64_t size_ = 0;
  int fd_ = -1;  // for read()
};

/// The name of a new file may be taken: commit() replaces its owner, or throws "PATH: exists; need a new name".
enum class Existing : uint8_t { kReplace, kRefuse };

/// A file that appears under its name at commit(), complete and on disk, and never before. Destroyed without commit, it
/// leaves nothing. It is written as `path.tmp-PID-N` in the same folder. It replaces regular files only.
class AtomicFile {
 public:
  /// `memory`: a file that gets the bytes instead, as one in memory that another process holds open; the name is a link
  /// to it. Nobody else may read it before commit().
  explicit AtomicFile(const std::string& path, const std::string& memory = "");
  AtomicFile(const AtomicFile&) = delete;
  ~AtomicFile();
  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text.data(), text.size()))); }
  /// Overwrites bytes already written, such as a header whose counts are known last.
  void rewrite(int64_t offset, std::span<const std::byte> bytes);
  /// Gives the file its final size; any process may then write at any offset of temporary(). Throws FailedPrecondition
  /// if the file system does not write at an offset.
  void resize(int64_t bytes);
  /// The path of the file until commit().
  const std::string& temporary() const { return temp_; }
  /// Bytes written so far.
  int64_t size() const { return size_; }
  /// fsync, rename over `path`, fsync of the folder.
  void commit(Existing existing = Existing::kReplace);

 private:
  std::string path_, temp_;
  int fd_ = -1;
  int64_t size_ = 0;
};

/// Writes a whole file through AtomicFile.
void write_file_atomic(const std::string& path, std::string_view bytes);

/// Throws the error that AtomicFile and make_folders() would throw for a path now; writes nothing. A missing parent is
/// an error for both.
void check_file(const std::string& path);
void check_folder(const std::string& path);

/// A folder that appears under its name at commit(), complete and on disk, and replaces a folder of that name.
/// Destroyed without commit, it leaves nothing. Fill `folder()` by any means before commit(). The name always refers to
/// a complete folder; on a file system that cannot exchange two names, after restore_folders().
class AtomicFolder {
 public:
  explicit AtomicFolder(const std::string& path);
  AtomicFolder(const AtomicFolder&) = delete;
  ~AtomicFolder();
  /// The temporary folder, `path.tmp-PID-N`.
  const std::string& folder() const { return temp_; }
  /// Path of a file inside the temporary folder.
  std::string path(const std::string& name) const { return temp_ + "/" + name; }
  /// fsync of everything inside, rename to `path`, fsync of the parent.
  void commit(Existing existing = Existing::kReplace);

 private:
  void swap_by_renames();

  std::string path_, temp_;
  int lock_ = -1;
};

/// Gives folders in `folder` their names back if a process ended while AtomicFolder replaced them. Call it before you
/// look for such a folder.
void restore_folders(const std::string& folder);

/// A lock between processes: a file, made if there is none, that one object at a time holds. The kernel releases it
/// when the process ends. The file has the text "process PID" of the last holder; a file with another text, and a
/// symbolic link, are refused.
class FileLock {
 public:
  /// Throws FailedPrecondition "WHAT is in use by process PID; need ..." if the lock is held.
  FileLock(const std::string& path, const std::string& what);
  FileLock(const FileLock&) = delete;
  ~FileLock();
  /// Makes the lock's file again if it was removed; call it before you rely on the lock after a long time. Throws
  /// FailedPrecondition if another process has locked a new file of this name since.
  void renew();
  /// Whether another file has the lock's name: another process has used the path. renew() then throws.
  bool is_replaced() const;
  /// True if some object holds the lock. Never makes another process fail to get it.
  static bool is_held(const std::string& path);

 private:
  const std::string path_, what_;
  int fd_ = -1;
};

/// Removes from `folder` the temporary folders of AtomicFolder that dead processes left behind, if they have a mark
/// beside them (mark.h). Live processes keep theirs, because each holds a lock on its own. Calls restore_folders().
/// Returns the number of removed folders.
int remove_leftovers(const std::string& folder);

/// Removes a folder so that its name never refers to a part of it: an interruption leaves a temporary, which
/// remove_leftovers() removes.
void remove_folder_at_once(const std::string& path);

/// Text of an errno value: "No such file or directory".
std::string errno_text(int error);

}  // namespace weft::io
