// The folder of compiled kernels, shared by processes without locks. An object holds the kernels of one translation
// unit (a shared object of the host's compiler, or a cubin) and stands there once per kernel, as hard links named by
// the kernels' keys. It ends with a table of those keys and a checksum, so a name alone is never believed; whatever
// fails a check is removed and built again.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace weft::jit {

/// 128 bits that stand for a kernel's content and all that its code depends on.
struct Key {
  uint64_t hi = 0, lo = 0;
  std::string hex() const;
  auto operator<=>(const Key&) const = default;
};
/// The key of what `base` stands for followed by `text`; two hashes that have nothing in common.
Key continued(Key base, std::string_view text);

/// What an object is; kinds share the folder and its limit of bytes, never an entry.
enum class ObjectKind { shared_object, cubin };

class Cache {
 public:
  /// A folder's place on disk, which hard links share.
  using Inode = std::pair<uint64_t, uint64_t>;
  /// A checked shared object and which of the asked keys (by position) it holds.
  struct Object {
    std::string path;
    Inode inode;
    std::vector<size_t> holds;
  };

  /// `folder` is made, with mode 0700, if it is not there. `asked`: the user named it, so an unsafe folder (not owned
  /// by the user, or open to others) is an error; else it only is not used.
  Cache(const std::string& folder, bool asked, ObjectKind kind = ObjectKind::shared_object);

  /// Empty if the folder is not used.
  const std::string& folder() const { return folder_; }
  /// Why it is not used; empty if it is.
  const std::string& note() const { return note_; }

  /// Finds shared objects for the keys that the folder has; adds the number of damaged ones to `damaged`.
  std::vector<Object> find(std::span<const Key> keys, int64_t& damaged) const;
  /// The bytes of a key's object, checked and without its table; empty if the folder has it not (or damaged, counted).
  std::string read(const Key& key, int64_t& damaged) const;
  /// Removes an entry found bad after find().
  void remove(const Key& key) const;

  /// Ends the shared object `path`, a file inside the folder, with its table and publishes it under `keys`.
  /// Returns the path of an entry; throws weft::Error if the disk does not take it.
  std::string store(const std::string& path, std::span<const Key> keys) const;

  /// Publishes objects of one key each, given as bytes; throws weft::Error if the disk does not take them.
  void store(std::span<const std::pair<Key, std::string_view>> objects) const;

  /// Removes the least recently used objects of any kind until at most `max_bytes` are left; never one of `in_use`.
  void shrink(int64_t max_bytes, std::span<const Inode> in_use) const;

  /// Bytes on disk, and kernels.
  std::pair<int64_t, int64_t> size() const;

 private:
  std::string path_of(const Key& key) const;
  // Marks it as used; the keys of its table, none if it is damaged.
  std::vector<Key> keys_of(int fd, std::string& bytes) const;

  std::string folder_, note_;
  ObjectKind kind_;
};

/// The inode of a file; zeros if there is none.
Cache::Inode inode_of(const std::string& path);

}  // namespace weft::jit
