// Writing by ranges. Neighbouring bytes of a file may come from two hosts, so a process writes its own ranges and
// nothing around them.
//
// A range below kShort, as tensor parallelism along the last dim gives many, is expensive to write by itself. Many of
// them in a block are copied to a mapping of the file instead, where this is safe: the processes share the pages (one
// host, a local file system), and a full disk is an error of fallocate(). Elsewhere a store to a mapping may end the
// process by SIGBUS: btrfs, for one, may lack space for a page that is allocated already.
#include "framework/io/safetensors_parts.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>

#include "framework/base/error.h"
#include "framework/base/thread_pool.h"
#include "framework/io/crc32c.h"
#include "framework/io/file_internal.h"
#include "framework/io/safetensors_format.h"

namespace weft::io {
namespace {

constexpr int64_t kShort = 64 << 10;  // bytes
constexpr int kMany = 4;              // short ranges of a block: a mapping is worth its calls
constexpr size_t kPiece = 128 << 10;  // bytes: they stay in the cache from the checksum to the write

// A file of the layout that other processes write, too.
class PartFile {
 public:
  PartFile(const std::string& path, bool one_host) : path_(internal::final_path(path)) {
    struct statfs fs;
    maps_ = one_host && ::statfs(path.c_str(), &fs) == 0 &&
            (fs.f_type == TMPFS_MAGIC || fs.f_type == EXT4_SUPER_MAGIC || fs.f_type == XFS_SUPER_MAGIC);
    // An NFS client that can read a page may write the whole page, with another host's bytes.
    do {
      fd_ = ::open(path.c_str(), (maps_ ? O_RDWR : O_WRONLY) | O_CLOEXEC);
    } while (fd_ < 0 && errno == EINTR);
    const int error = fd_ < 0 ? errno : 0;
    WEFT_CHECK_AS(kNotFound, error != ENOENT, "cannot write '", path_, "': ", errno_text(error),
                  "; the first process made it: need a folder that all hosts share");
    if (error) internal::fail(error, "write", path_);
    struct stat st;
    if (::fstat(fd_, &st) == 0) size_ = st.st_size;
    maps_ = maps_ && size_ > 0;
  }
  PartFile(const PartFile&) = delete;
  ~PartFile() { ::close(fd_); }

  void write(std::span<const std::byte> bytes, int64_t at) { internal::write_all(fd_, bytes, at, path_); }

  void sync() {
    if (::fsync(fd_) != 0) internal::fail(errno, "write", path_);
  }

  // Whether stores to a mapping of these bytes find room on the disk.
  bool makes_room(int64_t begin, int64_t end) {
    if (!maps_) return false;
    int result;
    do {
      result = ::fallocate(fd_, 0, begin, end - begin);
    } while (result != 0 && errno == EINTR);
    const bool unknown = result != 0 && (errno == EOPNOTSUPP || errno == ENOSYS || errno == EINVAL);
    if (result != 0 && !unknown) internal::fail(errno, "write", path_);
    if (unknown) maps_ = false;
    return !unknown;
  }

  int fd() const { return fd_; }
  int64_t size() const { return size_; }

 private:
  const std::string path_;
  int64_t size_ = 0;
  int fd_ = -1;
  std::atomic<bool> maps_ = false;
};

// Bytes [begin, end) of a file for writing, or null.
class WrittenMapping {
 public:
  // A store to a page needs space for all blocks of the page, of which a file system may have several.
  WrittenMapping(PartFile& file, int64_t begin, int64_t end)
      : begin_(begin / page() * page()), size_(std::min((end + page() - 1) / page() * page(), file.size()) - begin_) {
    if (!file.makes_room(begin_, begin_ + size_)) return;
    void* const p = ::mmap(nullptr, static_cast<size_t>(size_), PROT_READ | PROT_WRITE, MAP_SHARED, file.fd(), begin_);
    if (p != MAP_FAILED) data_ = static_cast<std::byte*>(p);
  }
  WrittenMapping(const WrittenMapping&) = delete;
  ~WrittenMapping() {
    if (data_) ::munmap(data_, static_cast<size_t>(size_));
  }
  explicit operator bool() const { return data_; }
  std::byte* at(int64_t position) const { return data_ + (position - begin_); }

 private:
  static int64_t page() {
    static const int64_t bytes = ::sysconf(_SC_PAGESIZE);
    return bytes;
  }
  const int64_t begin_, size_;
  std::byte* data_ = nullptr;
};

// Bytes of a tensor from position `at`.
struct ByteRange {
  int64_t at = 0;
  std::span<const std::byte> bytes;
  int64_t end() const { return at + std::ssize(bytes); }
};

// The ranges of this process in one block of a tensor.
struct BlockPart {
  size_t tensor = 0, block = 0;  // numbers in the layout
  int64_t end = 0;               // end of the block, in bytes of the tensor
  std::vector<ByteRange> ranges;
};

// Sorts ranges and joins neighbours, whose bytes then are in `memory`.
void join_neighbours(std::vector<ByteRange>& ranges, std::vector<std::byte>& memory) {
  std::sort(ranges.begin(), ranges.end(), [](const ByteRange& a, const ByteRange& b) { return a.at < b.at; });
  size_t count = 0, used = 0;  // bytes of `memory`
  for (size_t i = 0, last; i < ranges.size(); i = last) {
    for (last = i + 1; last < ranges.size() && ranges[last].at == ranges[last - 1].end();) ++last;
    WEFT_BUG_IF(last < ranges.size() && ranges[last].at < ranges[last - 1].end(), "pieces of a tensor overlap");
    ByteRange joined = ranges[i];
    if (last > i + 1) {
      memory.resize(kBlock);
      joined.bytes = {memory.data() + used, static_cast<size_t>(ranges[last - 1].end() - joined.at)};
      for (; i < last; used += ranges[i++].bytes.size())
        std::memcpy(memory.data() + used, ranges[i].bytes.data(), ranges[i].bytes.size());
    }
    ranges[count++] = joined;
  }
  ranges.resize(count);
}

// Writes a part of a block to its file, where the tensor begins at `begin`. Returns its share in the checksum.
uint32_t write_block(BlockPart& block, PartFile& file, int64_t begin, std::vector<std::byte>& memory,
                     const std::function<void()>& pause) {
  std::vector<ByteRange>& ranges = block.ranges;
  join_neighbours(ranges, memory);
  const auto is_short = [](const ByteRange& r) { return std::ssize(r.bytes) < kShort; };
  std::optional<WrittenMapping> mapping;
  if (std::count_if(ranges.begin(), ranges.end(), is_short) >= kMany)
    mapping.emplace(file, begin + ranges.front().at, begin + ranges.back().end());
  uint32_t word = 0;
  int64_t at = ranges.front().at;
  for (ByteRange r : ranges) {
    const bool to_mapping = mapping && *mapping && is_short(r);
    while (!r.bytes.empty()) {
      const auto piece = r.bytes.first(std::min(r.bytes.size(), kPiece));
      word = crc32c_combine(word, crc32c_share(piece, 0), r.at + std::ssize(piece) - at);
      if (to_mapping)
        std::memcpy(mapping->at(begin + r.at), piece.data(), piece.size());
      else
        file.write(piece, begin + r.at);
      at = r.at += std::ssize(piece);
      r.bytes = r.bytes.subspan(piece.size());
      if (pause) pause();
    }
  }
  return crc32c_combine(word, 0, block.end - at);
}

// Adds the ranges of a piece to the blocks of its tensor.
void add_ranges(const TensorPiece& piece, const TensorInfo& tensor, std::vector<BlockPart>& blocks) {
  const int64_t item = itemsize(tensor.dtype);
  each_run(piece.part, tensor.shape, [&](const ElementRun& run) {
    const std::byte* from = static_cast<const std::byte*>(piece.data) + run.part * item;
    for (int64_t at = run.whole * item, end = at + run.count * item; at < end;) {
      BlockPart& block = blocks[static_cast<size_t>(at / kBlock)];
      const int64_t n = std::min(end, block.end) - at;
      block.ranges.push_back({at, {from, static_cast<size_t>(n)}});
      at += n, from += n;
    }
  });
}

}  // namespace

SafetensorsFiles::SafetensorsFiles(const SafetensorsLayout& layout, const std::string& folder,
                                   const std::string& memory)
    : layout_(layout), prefix_(folder.empty() ? "" : folder + "/") {
  WEFT_BUG_IF(!memory.empty() && layout.files() != 1, layout.path(0), ": ", layout.files(), " files in one of memory");
  for (size_t f = 0; f < layout.files(); ++f) {
    files_.push_back(std::make_unique<AtomicFile>(prefix_ + layout.path(f), memory));
    files_.back()->resize(layout.size(f));
  }
}

std::vector<std::string> SafetensorsFiles::paths() const {
  std::vector<std::string> paths;
  for (const auto& file : files_) paths.push_back(std::filesystem::absolute(file->temporary()).string());
  return paths;
}

void SafetensorsFiles::commit(std::vector<uint32_t> shares) {
  for (const SafetensorsLayout::PlacedTensor& t : layout_.tensors())
    for (int64_t begin = 0, b = static_cast<int64_t>(t.first_block); begin < t.info.nbytes(); begin += kBlock, ++b)
      shares[static_cast<size_t>(b)] ^= crc32c_of_zeros(std::min(kBlock, t.info.nbytes() - begin));
  for (size_t f = 0; f < files_.size(); ++f) {
    const std::string header = layout_.header(f, shares);
    files_[f]->rewrite(0, std::as_bytes(std::span(header)));
    files_[f]->commit();
  }
  if (!layout_.index().empty()) write_file_atomic(prefix_ + layout_.index_path(), layout_.index());
}

std::vector<uint32_t> write_parts(const SafetensorsLayout& layout, const std::vector<std::string>& paths,
                                  std::vector<TensorPiece> pieces, bool one_host, const std::function<void()>& pause) {
  std::stable_sort(pieces.begin(), pieces.end(),
                   [](const TensorPiece& a, const TensorPiece& b) { return a.tensor < b.tensor; });
  std::vector<uint32_t> shares(layout.blocks());
  std::vector<std::unique_ptr<PartFile>> files(paths.size());
  // Threads write blocks of several tensors at once, but the ranges of few tensors are listed at a time.
  constexpr int64_t kBytesAtOnce = int64_t{64} << 20;
  std::vector<BlockPart> batch;
  int64_t bytes = 0;
  const auto write_batch = [&] {
    const auto n = std::ssize(batch);
    parallel_chunks(n, 1 + n * (1 << 20) / (bytes + 1), [&](int64_t i, int64_t end) {
      std::vector<std::byte> memory;
      for (; i < end; ++i) {
        BlockPart& block = batch[static_cast<size_t>(i)];
        const SafetensorsLayout::PlacedTensor& t = layout.tensors()[block.tensor];
        shares[block.block] = write_block(block, *files[t.file], t.info.begin, memory, pause);
      }
    });
    batch.clear();
    bytes = 0;
  };
  for (size_t i = 0; i < pieces.size();) {
    const SafetensorsLayout::PlacedTensor& t = layout.tensors()[pieces[i].tensor];
    std::vector<BlockPart> blocks(static_cast<size_t>(blocks_of(t.info.nbytes())));
    for (size_t b = 0; b < blocks.size(); ++b)
      blocks[b] = {
          pieces[i].tensor, t.first_block + b, std::min(static_cast<int64_t>(b + 1) * kBlock, t.info.nbytes()), {}};
    for (const size_t tensor = pieces[i].tensor; i < pieces.size() && pieces[i].tensor == tensor; ++i)
      add_ranges(pieces[i], t.info, blocks);
    for (BlockPart& block : blocks) {
      if (block.ranges.empty()) continue;
      for (const ByteRange& r : block.ranges) bytes += std::ssize(r.bytes);
      batch.push_back(std::move(block));
    }
    if (!files[t.file]) files[t.file] = std::make_unique<PartFile>(paths[t.file], one_host);
    if (bytes >= kBytesAtOnce) write_batch();
  }
  write_batch();
  for (const auto& file : files)
    if (file) file->sync();
  return shares;
}

namespace {

// One process has all parts.
void write_whole(const SafetensorsLayout& layout, const std::string& folder, std::span<const NamedView> tensors) {
  std::vector<TensorPiece> pieces;
  for (size_t i = 0; i < tensors.size(); ++i)
    pieces.push_back({i, TensorPart::all(tensors[i].view.shape), tensors[i].view.data});
  SafetensorsFiles files(layout, folder);
  files.commit(write_parts(layout, files.paths(), std::move(pieces), true));
}

std::vector<TensorEntry> entries_of(const std::string& path, std::span<const NamedView> tensors) {
  std::vector<TensorEntry> entries;
  for (const NamedView& t : tensors) {
    WEFT_CHECK(t.view.contiguous(), path, ": tensor '", t.name, "' is not contiguous");
    entries.push_back({t.name, t.view.dtype, t.view.shape});
  }
  return entries;
}

}  // namespace

void write_safetensors(const std::string& path, std::span<const NamedView> tensors, const Metadata& metadata) {
  write_whole(SafetensorsLayout(path, entries_of(path, tensors), metadata), "", tensors);
}

void write_safetensors_folder(const std::string& folder, const std::string& stem, std::span<const NamedView> tensors,
                              const Metadata& metadata, int64_t max_file_bytes) {
  const std::string path = str_cat(stem, kFile);
  write_whole(SafetensorsLayout(path, entries_of(path, tensors), metadata, max_file_bytes), folder, tensors);
}

}  // namespace weft::io
