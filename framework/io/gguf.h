// GGUF, the file format of llama.cpp: typed metadata and named tensors, some of them quantised. Format:
// https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, versions 2 and 3. A reader checks everything but the data.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "framework/io/file.h"
#include "framework/io/gguf_blocks.h"
#include "framework/tensor/shape.h"

namespace weft::io {

/// Whether a path names a GGUF file: it ends with ".gguf" and is not a folder.
bool is_gguf(const std::string& path);

/// A tensor of a file: `begin` and `end` are byte positions in part `part` of a model in several files.
struct GgufTensor {
  std::string name;
  const GgufFormat* format = nullptr;
  Shape shape;  // row-major: the last extent is the first one of the file
  size_t part = 0;
  int64_t begin = 0, end = 0;
};

/// A value as the bytes that files have for it: its type, and its elements.
struct GgufBytes {
  std::string bytes;
};
/// Metadata to write, in order.
using GgufValue = std::variant<bool, uint32_t, float, std::string, std::vector<std::string>, std::vector<int32_t>,
                               std::vector<float>, GgufBytes>;
using GgufMetadata = std::vector<std::pair<std::string, GgufValue>>;

/// A mapped file, and the other files of a model in several files NAME-00001-of-00003.gguf; copies share the mappings.
/// Opening checks all metadata and that each tensor is inside the file. Throws InvalidArgument or DataLoss
/// "PATH: ..." on an inconsistent file. The metadata stay in the mapped file, and must stay there.
class GgufFile {
 public:
  explicit GgufFile(const std::string& path);
  const std::string& path() const;

  /// The names of the metadata, sorted.
  std::vector<std::string_view> keys() const;
  bool contains(std::string_view key) const;
  /// The value of a key; nothing if the file does not have the key. Throws InvalidArgument, naming file and key, for a
  /// value of another type. integer() accepts all whole numbers to 2^63-1. Texts live as long as any copy of this
  /// object, and may have any bytes.
  std::optional<bool> boolean(std::string_view key) const;
  std::optional<int64_t> integer(std::string_view key) const;
  std::optional<std::string_view> text(std::string_view key) const;
  /// A scalar as text, numbers in the shortest form that gives the value in its type again: the f32 nearest to 1e-5 is
  /// "1e-05".
  std::optional<std::string> shown(std::string_view key) const;
  /// Lists; empty for none. Throws as above.
  std::vector<std::string_view> texts(std::string_view key) const;
  std::vector<int64_t> integers(std::string_view key) const;
  std::vector<double> numbers(std::string_view key) const;
  /// The metadata whose names begin with `prefix`, of any type, to be written again.
  GgufMetadata metadata(std::string_view prefix) const;

  /// The tensors of all files, sorted by name.
  const std::vector<GgufTensor>& tensors() const;
  /// The tensor with this name, or null.
  const GgufTensor* find(std::string_view name) const;
  /// The data. The memory is read-only and lives as long as any copy of this object.
  std::span<const std::byte> bytes(const GgufTensor& tensor) const;
  /// Copies the data from byte `begin` on. Throws DataLoss if another program has cut the file.
  void read(const GgufTensor& tensor, int64_t begin, std::span<std::byte> to) const;
  /// The data leaves this process's memory; the next read gets it from the file again.
  void release(const GgufTensor& tensor) const;

 private:
  struct State;
  std::shared_ptr<const State> state_;
};

/// A tensor to write. `data`: its blocks, which stay alive until the call returns.
struct GgufData {
  std::string name;
  uint32_t format = kGgufF32;
  Shape shape;  // row-major
  std::span<const std::byte> data;
};

/// Writes one file of version 3 atomically. The same input gives the same bytes.
void write_gguf(const std::string& path, const GgufMetadata& metadata, std::span<const GgufData> tensors,
                Existing existing = Existing::kReplace);
/// The content of such a file without tensors.
std::string gguf_of(const GgufMetadata& metadata);

}  // namespace weft::io
