// The checks that parse_graph and parse_graph_proto share: names, types, counts, captured tensors, nesting.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "framework/ir/op_def.h"

namespace weft::internal {

class GraphReader {
 protected:
  ~GraphReader() = default;

  /// Where the reader is, as messages begin: "parse_graph: line 3: ".
  virtual std::string place() const = 0;
  /// Throws InvalidArgument "PLACE got GOT; need NEED".
  [[noreturn]] void refuse(std::string_view got, std::string_view need) const;

  DType dtype_named(std::string_view name) const;
  /// The inverse of Device::to_string(); "cuda" is "cuda:0".
  Device device_named(std::string_view name) const;
  const OpDef& op_named(std::string_view name, const OpTable& ops) const;
  /// Refuses extents that no tensor has.
  void check_shape(const TensorType& t) const;
  /// Attributes with distinct names.
  Attrs distinct(std::vector<Attrs::AttrEntry> entries) const;
  /// Refuses `have` operands or results if the op has another fixed number.
  void check_count(const OpDef& op, const char* what, size_t have, int need) const;
  /// Refuses elements of a captured tensor that is never written with its elements.
  void check_inline(const TensorType& t) const;
  /// A captured tensor whose elements were not written. On the CPU all such tensors together have a limited size.
  Tensor zeros(const TensorType& t);

  /// During its lifetime the reader is in one more nested graph. Refuses too many.
  class Level {
   public:
    explicit Level(GraphReader& r);
    ~Level() { --depth_; }
    Level(const Level&) = delete;

   private:
    int& depth_;
  };

 private:
  int depth_ = 0;
  int64_t captured_bytes_ = 0;
};

/// Same as verify(), for a graph from outside: throws InvalidArgument, and the message begins with `reader`.
void verify_read(const Graph& g, const char* reader);

}  // namespace weft::internal
