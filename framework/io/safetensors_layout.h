// SafetensorsLayout: the place of each byte of a set of safetensors files. It follows from types alone, so processes of
// a job compute the same layout, and each writes its part (safetensors_parts.h).
#pragma once
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "framework/io/safetensors.h"

namespace weft::io {

/// The type of a tensor to write.
struct TensorEntry {
  std::string name;
  DType dtype = kFloat32;
  Shape shape;
};

class SafetensorsLayout {
 public:
  /// A tensor, its file, and its blocks of 4 MiB with one checksum each: numbers `first_block` and following of all.
  struct PlacedTensor {
    TensorInfo info;
    size_t file = 0, first_block = 0;
  };
  /// `path` is the name or path of the one file. Above `max_file_bytes` of data there are several files
  /// `STEM-00001-of-00003.safetensors`, where `path` is STEM.safetensors, and an index. Each file begins with the
  /// larger element types, so that tensors are aligned; otherwise the given order is kept. Throws InvalidArgument,
  /// beginning with `path`, for a name that the format does not allow, for equal names, and for reserved metadata.
  SafetensorsLayout(const std::string& path, std::span<const TensorEntry> tensors, const Metadata& metadata,
                    int64_t max_file_bytes = std::numeric_limits<int64_t>::max());

  /// In the given order.
  const std::vector<PlacedTensor>& tensors() const { return tensors_; }
  size_t files() const { return files_.size(); }
  const std::string& path(size_t file) const { return files_[file].path; }
  /// Bytes of a file.
  int64_t size(size_t file) const { return files_[file].size; }
  /// The number of blocks of all tensors.
  size_t blocks() const { return blocks_; }
  /// The bytes of a file before its data. `checksums`: CRC-32C of each block of the layout.
  std::string header(size_t file, std::span<const uint32_t> checksums) const;
  /// The path and the text of the index; "" if there is one file.
  const std::string& index_path() const { return index_path_; }
  const std::string& index() const { return index_; }

 private:
  struct File {
    std::string path;
    std::vector<size_t> tensors, by_name;  // as their data is ordered; as the header names them
    std::string metadata, entries;         // the object without its end; members of an object
    int64_t size = 0;
  };
  void place(File& file, size_t number);

  std::vector<PlacedTensor> tensors_;
  std::vector<File> files_;
  size_t blocks_ = 0;
  std::string index_path_, index_;
};

}  // namespace weft::io
