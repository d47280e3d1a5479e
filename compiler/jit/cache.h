// The folder of compiled kernels, shared by processes without locks. A shared object holds the kernels of one
// translation unit and stands there once per kernel, as hard links named by the kernels' keys. It ends with a table of
// those keys and a checksum, so a name alone is never believed; whatever fails a check is removed and built again.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace weft::jit {

/// 128 bits that stand for a kernel's content and all that its code depends on.
struct Key {
  uint64_t hi = 0, lo = 0;
  std::string hex() const;
  auto operator<=>(const Key&) const = default;
};

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
  Cache(const std::string& folder, bool asked);

  /// Empty if the folder is not used.
  const std::string& folder() const { return folder_; }
  /// Why it is not used; empty if it is.
  const std::string& note() const { return note_; }

  /// Finds shared objects for the keys that the folder has; adds the number of damaged ones to `damaged`.
  std::vector<Object> find(std::span<const Key> keys, int64_t& damaged) const;
  /// Removes an entry found bad after find().
  void remove(const Key& key) const;

  /// Ends the shared object `path`, a file inside the folder, with its table and publishes it under `keys`.
  /// Returns the path of an entry; throws weft::Error if the disk does not take it.
  std::string store(const std::string& path, std::span<const Key> keys) const;

  /// Removes the least recently used objects until at most `max_bytes` are left; never one of `in_use`.
  void shrink(int64_t max_bytes, std::span<const Inode> in_use) const;

  /// Bytes on disk, and kernels.
  std::pair<int64_t, int64_t> size() const;

 private:
  std::string path_of(const Key& key) const;
  std::string folder_, note_;
};

/// The inode of a file; zeros if there is none.
Cache::Inode inode_of(const std::string& path);

}  // namespace weft::jit
