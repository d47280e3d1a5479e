#include "compiler/jit/cache.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <map>

#include "framework/base/error.h"
#include "framework/base/hash.h"
#include "framework/io/checksum.h"
#include "framework/io/file.h"

namespace weft::jit {
namespace {

constexpr uint64_t kMagic = 0x314a544657ull;               // increase it with any change of the format below
constexpr std::string_view kSuffix[] = {".so", ".cubin"};  // index: ObjectKind
constexpr size_t kHexLength = 32;
constexpr int64_t kMaxObject = 64 << 20;
// A link needs only a name. More names than this make a directory listing take tens of milliseconds.
constexpr size_t kMaxNames = 20000;

// The file ends with the keys and then this record.
struct Trailer {
  uint64_t magic = kMagic;
  uint64_t object_bytes = 0, keys = 0;
  uint64_t checksum = 0;  // checksum of all bytes before it
};

struct OpenFile {
  explicit OpenFile(const std::string& path, int flags, int mode = 0)
      : fd(::open(path.c_str(), flags | O_CLOEXEC | O_NONBLOCK, mode)) {}
  OpenFile(const OpenFile&) = delete;
  ~OpenFile() {
    if (fd >= 0) ::close(fd);
  }
  bool write(std::string_view bytes) const {
    return fd >= 0 && ::write(fd, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size());
  }
  int fd;
};

std::string read_all(int fd, int64_t size) {
  std::string bytes(size, '\0');
  int64_t done = 0;
  while (done < size) {
    ssize_t n = ::pread(fd, bytes.data() + done, size - done, done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return "";
    done += n;
  }
  return bytes;
}

template <class T>
std::string_view bytes_of(std::span<const T> v) {
  return {reinterpret_cast<const char*>(v.data()), v.size_bytes()};
}

// The keys of a well-formed entry; empty if the entry is damaged.
std::vector<Key> checked_keys(const std::string& bytes) {
  Trailer t;
  if (bytes.size() < sizeof t) return {};
  std::memcpy(&t, bytes.data() + bytes.size() - sizeof t, sizeof t);
  if (t.magic != kMagic || t.keys == 0 || t.keys > bytes.size() / sizeof(Key)) return {};
  if (t.object_bytes + t.keys * sizeof(Key) + sizeof t != bytes.size()) return {};
  if (io::checksum(std::string_view(bytes).substr(0, bytes.size() - sizeof t.checksum)) != t.checksum) return {};
  std::vector<Key> keys(t.keys);
  std::memcpy(keys.data(), bytes.data() + t.object_bytes, t.keys * sizeof(Key));
  return keys;
}

// The first of `path` and its parents, as absolute paths, that any user of the machine can replace.
std::string replaceable(const std::string& path) {
  char* resolved = ::realpath(path.c_str(), nullptr);
  std::string at = resolved ? resolved : path;
  std::free(resolved);
  struct stat st;
  for (;;) {
    if (::stat(at.c_str(), &st) != 0) return at;
    if ((st.st_mode & S_IWOTH) && !(st.st_mode & S_ISVTX)) return at;
    size_t slash = at.rfind('/');
    if (at == "/" || slash == std::string::npos) return "";
    at = slash == 0 ? "/" : at.substr(0, slash);
  }
}

// Why code must not be loaded from the folder; empty if it may.
std::string unsafe(const std::string& folder) {
  struct stat st;
  if (::stat(folder.c_str(), &st) != 0) return str_cat("cannot be read: ", io::errno_text(errno));
  if (!S_ISDIR(st.st_mode)) return "is not a folder";
  if (st.st_uid != ::geteuid()) return "belongs to another user, and code is loaded from it";
  if (st.st_mode & 0077) return str_cat("is open to other users, and code is loaded from it; need: chmod 700 ", folder);
  std::string parent = replaceable(folder);
  return parent.empty() ? "" : str_cat("is in ", parent, ", which any user can write, and code is loaded from it");
}

}  // namespace

Key continued(Key base, std::string_view text) {
  return {hash_combine(base.hi, io::checksum(text)), hash_text(text, base.lo)};
}

std::string Key::hex() const { return io::hex64(hi) + io::hex64(lo); }

Cache::Inode inode_of(const std::string& path) {
  struct stat st;
  if (::stat(path.c_str(), &st) != 0) return {0, 0};
  return {st.st_dev, st.st_ino};
}

Cache::Cache(const std::string& folder, bool asked, ObjectKind kind) : kind_(kind) {
  WEFT_CHECK(!folder.empty() && folder != "/", "kernel cache: got '", folder, "'; need a folder of its own, or off");
  if (!io::exists(folder)) {
    try {
      std::string parent = io::folder_of(folder);
      if (!io::exists(parent)) io::make_folders(parent);
      if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) note_ = io::errno_text(errno);
    } catch (const Error& error) {
      note_ = error.what();
    }
    if (!note_.empty()) {
      note_ = str_cat("kernel cache: the folder ", folder, " cannot be created (", note_,
                      "); kernels are kept in memory only");
      return;
    }
  }
  std::string why = unsafe(folder);
  if (why.empty()) {
    folder_ = folder;
    return;
  }
  WEFT_CHECK_AS(kPermissionDenied, !asked, "kernel cache: ", folder, " ", why);
  note_ = str_cat("kernel cache: ", folder, " ", why, "; kernels are kept in memory only");
}

std::string Cache::path_of(const Key& key) const {
  return str_cat(folder_, "/", key.hex(), kSuffix[static_cast<int>(kind_)]);
}

std::vector<Key> Cache::keys_of(int fd, std::string& bytes) const {
  struct stat st;
  if (::fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_uid != ::geteuid() || st.st_size > kMaxObject) return {};
  bytes = read_all(fd, st.st_size);
  std::vector<Key> keys = checked_keys(bytes);
  // shrink() needs the time of the last use. It is coarse, because a write per use would cost too much.
  timespec now;
  ::clock_gettime(CLOCK_REALTIME, &now);
  if (!keys.empty() && now.tv_sec - st.st_mtim.tv_sec > 60) ::futimens(fd, nullptr);
  return keys;
}

std::vector<Cache::Object> Cache::find(std::span<const Key> keys, int64_t& damaged) const {
  struct FoundObject {
    size_t object = SIZE_MAX;  // index in the result
    std::vector<Key> keys;
  };
  std::vector<Object> objects;
  if (folder_.empty()) return objects;
  std::map<Inode, FoundObject> seen;
  for (size_t i = 0; i < keys.size(); ++i) {
    std::string path = path_of(keys[i]);
    OpenFile file(path, O_RDONLY | O_NOFOLLOW);
    struct stat st;
    if (file.fd < 0 || ::fstat(file.fd, &st) != 0) continue;
    auto [it, fresh] = seen.try_emplace(Inode{st.st_dev, st.st_ino});
    FoundObject& entry = it->second;
    std::string bytes;
    if (fresh) entry.keys = keys_of(file.fd, bytes);
    if (std::find(entry.keys.begin(), entry.keys.end(), keys[i]) == entry.keys.end()) {
      ++damaged;
      remove(keys[i]);
      continue;
    }
    if (entry.object == SIZE_MAX) {
      entry.object = objects.size();
      objects.push_back({path, it->first, {}});
    }
    objects[entry.object].holds.push_back(i);
  }
  return objects;
}

std::string Cache::read(const Key& key, int64_t& damaged) const {
  if (folder_.empty()) return "";
  OpenFile file(path_of(key), O_RDONLY | O_NOFOLLOW);
  if (file.fd < 0) return "";
  std::string bytes;
  std::vector<Key> keys = keys_of(file.fd, bytes);
  if (std::find(keys.begin(), keys.end(), key) == keys.end()) {
    ++damaged;
    remove(key);
    return "";
  }
  bytes.resize(bytes.size() - sizeof(Trailer) - keys.size() * sizeof(Key));
  return bytes;
}

void Cache::remove(const Key& key) const { ::unlink(path_of(key).c_str()); }

std::string Cache::store(const std::string& path, std::span<const Key> keys) const {
  std::string tail;
  {
    OpenFile file(path, O_RDWR);
    struct stat st;
    WEFT_CHECK_AS(kUnavailable, file.fd >= 0 && ::fstat(file.fd, &st) == 0, "kernel cache: cannot read ", path);
    std::string bytes = read_all(file.fd, st.st_size);
    Trailer t;
    t.object_bytes = bytes.size();
    t.keys = keys.size();
    tail.append(bytes_of(keys)).append(bytes_of(std::span<const Trailer>(&t, 1)));
    bytes += tail;
    t.checksum = io::checksum(std::string_view(bytes).substr(0, bytes.size() - sizeof t.checksum));
    std::memcpy(tail.data() + tail.size() - sizeof t.checksum, &t.checksum, sizeof t.checksum);
    // Not synced to disk: after a crash of the machine, the checksum detects missing data.
    const bool written =
        ::pwrite(file.fd, tail.data(), tail.size(), t.object_bytes) == static_cast<ssize_t>(tail.size());
    WEFT_CHECK_AS(kUnavailable, written && ::fchmod(file.fd, 0600) == 0, "kernel cache: cannot write to ", folder_,
                  ": ", io::errno_text(errno));
  }
  // First link it under a temporary name: rename() then replaces the old entry atomically.
  std::string link = path + ".link";
  for (const Key& key : keys) {
    ::unlink(link.c_str());
    if (::link(path.c_str(), link.c_str()) != 0) {
      // On a file system without hard links, make copies.
      const std::string bytes = io::read_file(path, kMaxObject);
      const OpenFile file(link, O_WRONLY | O_CREAT | O_TRUNC, 0600);
      WEFT_CHECK_AS(kUnavailable, file.write(bytes), "kernel cache: cannot write to ", folder_, ": ",
                    io::errno_text(errno));
    }
    WEFT_CHECK_AS(kUnavailable, ::rename(link.c_str(), path_of(key).c_str()) == 0, "kernel cache: cannot write to ",
                  folder_, ": ", io::errno_text(errno));
  }
  return path_of(keys[0]);
}

void Cache::store(std::span<const std::pair<Key, std::string_view>> objects) const {
  if (folder_.empty() || objects.empty()) return;
  io::remove_leftovers(folder_);
  io::AtomicFolder work(folder_ + "/weft-compile");  // never committed
  for (const auto& [key, bytes] : objects) {
    const std::string path = work.path(key.hex());
    {
      const OpenFile file(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
      WEFT_CHECK_AS(kUnavailable, file.write(bytes), "kernel cache: cannot write to ", folder_, ": ",
                    io::errno_text(errno));
    }
    store(path, std::span<const Key>(&key, 1));
  }
}

namespace {

struct CacheEntry {
  int64_t bytes = 0;
  timespec used = {};
  std::vector<std::string> names;
};

std::map<Cache::Inode, CacheEntry> list_entries(const std::string& folder) {
  std::map<Cache::Inode, CacheEntry> entries;
  DIR* listing = ::opendir(folder.c_str());
  if (!listing) return entries;
  while (dirent* d = ::readdir(listing)) {
    std::string_view name = d->d_name;
    struct stat st;
    if (name.size() <= kHexLength || name.find_first_not_of("0123456789abcdef") != kHexLength) continue;
    if (std::find(std::begin(kSuffix), std::end(kSuffix), name.substr(kHexLength)) == std::end(kSuffix)) continue;
    if (::fstatat(::dirfd(listing), d->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0) continue;
    CacheEntry& entry = entries[{st.st_dev, st.st_ino}];
    entry.bytes = st.st_blocks * 512;
    entry.used = st.st_mtim;
    entry.names.emplace_back(name);
  }
  ::closedir(listing);
  return entries;
}

// Whether a file ends with a trailer: the cache wrote it.
bool ends_as_object(const std::string& path) {
  const OpenFile file(path, O_RDONLY | O_NOFOLLOW);
  struct stat st;
  Trailer t{.magic = 0};
  if (file.fd < 0 || ::fstat(file.fd, &st) != 0) return false;
  return ::pread(file.fd, &t, sizeof t, st.st_size - static_cast<off_t>(sizeof t)) == sizeof t && t.magic == kMagic;
}

}  // namespace

std::pair<int64_t, int64_t> Cache::size() const {
  int64_t bytes = 0, names = 0;
  if (!folder_.empty())
    for (const auto& [inode, entry] : list_entries(folder_)) {
      bytes += entry.bytes;
      names += static_cast<int64_t>(entry.names.size());
    }
  return {bytes, names};
}

void Cache::shrink(int64_t max_bytes, std::span<const Inode> in_use) const {
  if (folder_.empty()) return;
  auto entries = list_entries(folder_);
  int64_t bytes = 0;
  size_t names = 0;
  std::vector<const CacheEntry*> idle;
  for (const auto& [inode, entry] : entries) {
    bytes += entry.bytes;
    names += entry.names.size();
    if (std::find(in_use.begin(), in_use.end(), inode) == in_use.end()) idle.push_back(&entry);
  }
  std::sort(idle.begin(), idle.end(), [](const CacheEntry* a, const CacheEntry* b) {
    return std::pair(a->used.tv_sec, a->used.tv_nsec) < std::pair(b->used.tv_sec, b->used.tv_nsec);
  });
  for (const CacheEntry* entry : idle) {
    if (bytes <= max_bytes && names <= kMaxNames) return;
    for (const std::string& name : entry->names)
      if (const std::string path = str_cat(folder_, "/", name); ends_as_object(path)) ::unlink(path.c_str());
    bytes -= entry->bytes;
    names -= entry->names.size();
  }
}

}  // namespace weft::jit
