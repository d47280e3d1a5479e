// WeightSource: the named tensors of a file or folder, whatever its format.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "framework/base/function_ref.h"
#include "framework/tensor/dtype.h"
#include "framework/tensor/shape.h"

namespace weft::io {
class SafetensorsModel;
}

namespace weft::weights {

struct WeightInfo {
  DType dtype = kFloat32;  // read() returns elements of this dtype
  Shape shape;
};

/// Functions with a name throw NotFound if there is no such tensor; find() returns nothing. They throw Unimplemented if
/// the tensor has a dtype that Weft does not have.
class WeightSource {
 public:
  virtual ~WeightSource() = default;
  /// The file or index, for errors.
  virtual const std::string& path() const = 0;
  virtual std::vector<std::string> names() const = 0;
  virtual std::optional<WeightInfo> find(std::string_view name) const = 0;
  /// Verifies the checksums of a tensor, if the file has any. Throws DataLoss if one differs.
  virtual void check(std::string_view) const {}
  /// Elements [begin, end) of the row-major tensor, which `room` receives. Verifies the checksums of the blocks that
  /// they touch, as check(), if that was not done yet. Throws DataLoss if another program has cut the file.
  /// Thread-safe.
  virtual const void* read(std::string_view name, int64_t begin, int64_t end, std::vector<std::byte>& room) const = 0;
  /// Calls fn(first, count, elements) for elements [begin, end) in order, in parts that a core's cache holds: multiples
  /// of `unit` elements, but for the last. Verifies as read(), but may do so while it reads: after DataLoss, the
  /// results of fn are of no use. Thread-safe.
  using Visitor = FunctionRef<void(int64_t first, int64_t count, const void* elements)>;
  virtual void visit(std::string_view name, int64_t begin, int64_t end, int64_t unit, Visitor fn) const;
  /// The elements of a tensor in the file's memory, as long as this object exists; null if they are not aligned there,
  /// or stored in another format. If another program cuts the file, an access ends this process by SIGBUS.
  virtual const void* in_place(std::string_view) const { return nullptr; }
  /// The tensor is not read again soon.
  virtual void release(std::string_view name) const = 0;
};

/// A .safetensors file, an index, or a folder with one. Throws "PATH: ..." for other files.
std::unique_ptr<WeightSource> open_safetensors(const std::string& path);
/// The same of an open file.
std::unique_ptr<WeightSource> source_of(io::SafetensorsModel file);

}  // namespace weft::weights
