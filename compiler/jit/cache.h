// The folder of compiled kernels, which processes share without locks. An object holds the kernels of one translation
// unit: it is a shared object of the host's compiler, or a cubin. Each of its kernels has a hard link to it, named by
// the kernel's key. The object ends with a table of those keys and a checksum, so its name alone is never trusted. An
// object that fails a check is removed and built again.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace weft::jit {

/// A 128-bit hash of a kernel's content and of everything its code depends on.
struct Key {
  uint64_t hi = 0, lo = 0;
  std::string hex() const;
  auto operator<=>(const Key&) const = default;
};
/// The key of the content of `base` followed by `text`. Its halves are two independent hashes.
Key continued(Key base, std::string_view text);

/// The kind of an object. Kinds share the folder and its size limit, but never an entry.
enum class ObjectKind { shared_object, cubin };

class Cache {
 public:
  /// A file's identity on disk, which hard links share.
  using Inode = std::pair<uint64_t, uint64_t>;
  /// A checked shared object, and the positions of the requested keys that it holds.
  struct Object {
    std::string path;
    Inode inode;
    std::vector<size_t> holds;
  };

  /// Creates `folder` with mode 0700 if it does not exist. `asked`: the user named it, so an unsafe folder (not owned
  /// by the user, or open to others) is an error. Otherwise an unsafe folder is only not used.
  Cache(const std::string& folder, bool asked, ObjectKind kind = ObjectKind::shared_object);

  /// Empty if the folder is not used.
  const std::string& folder() const { return folder_; }
  /// Why the folder is not used; empty if it is.
  const std::string& note() const { return note_; }

  /// Finds the shared objects for the keys that are in the folder. Adds the number of damaged ones to `damaged`.
  std::vector<Object> find(std::span<const Key> keys, int64_t& damaged) const;
  /// The checked bytes of a key's object without its table. Empty if it is not in the folder, or damaged (then
  /// counted).
  std::string read(const Key& key, int64_t& damaged) const;
  /// Removes an entry that turned out to be bad after find().
  void remove(const Key& key) const;

  /// Appends the table to the shared object `path`, a file in the folder, and publishes it under `keys`. Returns the
  /// path of an entry. Throws weft::Error if the disk write fails.
  std::string store(const std::string& path, std::span<const Key> keys) const;

  /// Publishes objects of one key each, given as bytes. Throws weft::Error if the disk write fails.
  void store(std::span<const std::pair<Key, std::string_view>> objects) const;

  /// Removes the least recently used objects of all kinds until at most `max_bytes` remain. Never removes one of
  /// `in_use`.
  void shrink(int64_t max_bytes, std::span<const Inode> in_use) const;

  /// The bytes on disk and the number of kernels.
  std::pair<int64_t, int64_t> size() const;

 private:
  std::string path_of(const Key& key) const;
  // Marks the entry as used. Returns the keys of its table, none if it is damaged.
  std::vector<Key> keys_of(int fd, std::string& bytes) const;

  std::string folder_, note_;
  ObjectKind kind_;
};

/// The inode of a file; zeros if there is none.
Cache::Inode inode_of(const std::string& path);

}  // namespace weft::jit
