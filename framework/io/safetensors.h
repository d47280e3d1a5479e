// safetensors: named tensors in one file (8-byte header length, JSON header, raw little-endian data), and folders of
// such files with an index. Format: https://github.com/huggingface/safetensors. A reader checks everything in the file.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "framework/base/function_ref.h"
#include "framework/tensor/dtype.h"
#include "framework/tensor/shape.h"
#include "framework/tensor/view.h"

namespace weft::io {

/// Free text stored with the tensors. Weft's checksums are the keys "crc32c.NAME": CRC-32C of each 4 MiB of the bytes
/// of a tensor and of the rest, 8 hexadecimal digits each. Older files have the key "xxh3.NAME": XXH3 of the tensor.
using Metadata = std::map<std::string, std::string>;

/// The name of the index of several files ends so, after the name that one file would have.
inline constexpr std::string_view kIndexEnding = ".index.json";

/// A tensor to write: `view` must be contiguous and stay alive until the call returns.
struct NamedView {
  std::string name;
  StridedView view;
};

/// Writes one file atomically, with checksums of each tensor. The data of larger element types comes first, so that
/// each tensor is aligned; otherwise the given order is kept. The same input gives the same bytes.
void write_safetensors(const std::string& path, std::span<const NamedView> tensors, const Metadata& metadata = {});

/// Writes `folder/STEM.safetensors`. Above `max_file_bytes` of data, writes several files
/// `STEM-00001-of-00003.safetensors` and the index `STEM.safetensors.index.json`. The folder must exist.
void write_safetensors_folder(const std::string& folder, const std::string& stem, std::span<const NamedView> tensors,
                              const Metadata& metadata = {}, int64_t max_file_bytes = int64_t{5} << 30);

/// One tensor of a file: `begin` and `end` are byte positions in the file.
struct TensorInfo {
  std::string name;
  DType dtype = kFloat32;
  Shape shape;
  int64_t begin = 0;
  int64_t end = 0;
  std::string unknown;  // instead of `dtype`: the name of a dtype that Weft does not have
  int64_t nbytes() const { return end - begin; }
};

/// One mapped file; copies share the mapping. Opening checks everything but the data: header, shapes, that the
/// offsets cover the file exactly, and that tables of checksums fit their tensors. Throws InvalidArgument or DataLoss
/// "PATH: ..." on an inconsistent file. A tensor of a dtype that Weft does not have is refused when it is needed: the
/// functions with a name throw Unimplemented, except find(). If another program cuts the file meanwhile, functions
/// throw DataLoss, and only an access to the memory of bytes() ends this process by SIGBUS. Thread-safe.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::string& path);
  const std::string& path() const;
  /// The tensors, sorted by name.
  const std::vector<TensorInfo>& tensors() const;
  /// The metadata, without Weft's checksums.
  const Metadata& metadata() const;
  /// The header's checksum. It identifies a file that Weft wrote, because the header contains the checksums of the
  /// data.
  uint64_t header_checksum() const;
  /// The tensor with this name, or null.
  const TensorInfo* find(std::string_view name) const;
  /// Throws NotFound, naming the file, if there is no such tensor.
  const TensorInfo& at(std::string_view name) const;
  /// The data. The first call for a tensor with checksums verifies it (DataLoss if one differs). The memory is
  /// read-only and lives as long as any copy of this object. Elements may be unaligned in files that Weft did not
  /// write.
  std::span<const std::byte> bytes(std::string_view name) const;
  /// Bytes [begin, end) of the data. Reads and verifies only the blocks that they touch, each at most once while copies
  /// of this object exist; an older file has one block for each tensor.
  std::span<const std::byte> bytes(std::string_view name, int64_t begin, int64_t end) const;
  /// Calls fn(offset, part) with copies of bytes [begin, end) of the data in order, in parts that a core's cache holds:
  /// multiples of `unit` bytes, but for the last. A part lives until fn returns. Verifies the blocks that bytes()
  /// verifies, whole blocks while it reads them. So fn may have read damaged bytes before DataLoss is thrown.
  using Visitor = FunctionRef<void(int64_t offset, std::span<const std::byte> part)>;
  void visit(std::string_view name, int64_t begin, int64_t end, int64_t unit, Visitor fn) const;
  /// Copies bytes [begin, end) of the data to `to`, and verifies as visit(). Threads share large ranges.
  void read(std::string_view name, int64_t begin, int64_t end, void* to) const;
  /// The data leaves this process's memory; the next read gets it from the file again.
  void release(std::string_view name) const;

 private:
  struct State;
  std::shared_ptr<const State> state_;
};

/// The tensors of a path: one .safetensors file, an index file, or a folder with STEM.safetensors(.index.json), where
/// STEM is "model" or the only one there. Copies share the files.
class SafetensorsModel {
 public:
  explicit SafetensorsModel(const std::string& path);
  /// The file or index.
  const std::string& path() const { return path_; }
  /// The names of the tensors, sorted.
  std::vector<std::string> names() const;
  bool contains(std::string_view name) const { return where_.find(name) != where_.end(); }
  const TensorInfo& at(std::string_view name) const { return file_of(name).at(name); }
  std::span<const std::byte> bytes(std::string_view name) const { return file_of(name).bytes(name); }
  std::span<const std::byte> bytes(std::string_view name, int64_t begin, int64_t end) const {
    return file_of(name).bytes(name, begin, end);
  }
  void visit(std::string_view name, int64_t begin, int64_t end, int64_t unit, SafetensorsFile::Visitor fn) const {
    file_of(name).visit(name, begin, end, unit, fn);
  }
  void read(std::string_view name, int64_t begin, int64_t end, void* to) const {
    file_of(name).read(name, begin, end, to);
  }
  void release(std::string_view name) const { file_of(name).release(name); }
  const Metadata& metadata() const { return files_.front().metadata(); }
  const std::vector<SafetensorsFile>& files() const { return files_; }

 private:
  const SafetensorsFile& file_of(std::string_view name) const;
  std::string path_;
  std::vector<SafetensorsFile> files_;
  std::map<std::string, size_t, std::less<>> where_;
};

}  // namespace weft::io
