// Attrs: the typed plain data of a node, so that nodes can be hashed, compared, printed, parsed and serialised.
#pragma once
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "framework/base/ref.h"
#include "framework/tensor/dtype.h"
#include "framework/tensor/shape.h"

namespace weft {

class Graph;

/// One attribute: a number, a flag, a dtype, a name, a list of up to kMaxDims integers, or a nested graph.
using AttrValue = std::variant<int64_t, double, bool, DType, std::string, Shape, Ref<Graph>>;

/// An immutable set of named attributes, sorted by name; copies are aliases. An empty set costs nothing.
class Attrs {
 public:
  using AttrEntry = std::pair<std::string, AttrValue>;
  Attrs() = default;
  Attrs(std::initializer_list<AttrEntry> entries);
  explicit Attrs(std::vector<AttrEntry> entries);

  bool empty() const { return !data_; }
  bool has(std::string_view key) const { return find(key) != nullptr; }
  /// Null if absent.
  const AttrValue* find(std::string_view key) const;
  /// The attribute of type T; throws, naming the key, if it is absent or has another type.
  template <class T>
  const T& get(std::string_view key) const;
  int64_t i(std::string_view key) const { return get<int64_t>(key); }
  double f(std::string_view key) const { return get<double>(key); }
  bool b(std::string_view key) const { return get<bool>(key); }
  const Shape& ints(std::string_view key) const { return get<Shape>(key); }
  /// The attribute, or `fallback` if absent.
  int64_t i(std::string_view key, int64_t fallback) const { return has(key) ? i(key) : fallback; }
  bool b(std::string_view key, bool fallback) const { return has(key) ? b(key) : fallback; }
  /// The same set with one attribute added or replaced.
  Attrs with(std::string key, AttrValue value) const;
  Attrs without(std::string_view key) const;
  std::span<const AttrEntry> entries() const;

  /// Nested graphs are compared by structure.
  friend bool operator==(const Attrs& a, const Attrs& b);
  uint64_t hash() const;

 private:
  struct Data final : RefCounted {
    ~Data() override;  // where Graph is complete
    std::vector<AttrEntry> entries;
  };
  Ref<Data> data_;
};

}  // namespace weft
