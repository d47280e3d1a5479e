// Mesh: ranks arranged along named dimensions. Internally, every dimension is a list of axes of prime size. So a view
// over the same ranks (experts over dp x tp) and a part of a dimension are lists of axes too.
#pragma once
#include <cstdint>
#include <initializer_list>
#include <source_location>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "framework/base/small_vec.h"

namespace weft::dist {

/// Axes of a mesh, the major one first.
using Axes = SmallVec<int8_t, 6>;

class Mesh {
 public:
  struct Dim {
    std::string name;
    int size = 1;
    Axes axes;
    std::string over;  // dimensions whose ranks a view takes, "dp,tp"; else empty
  };

  /// One rank.
  Mesh() = default;
  /// Named dimensions, the outermost first; the number of ranks is the product of their sizes. A name written
  /// "ep(dp,tp)" is a view: it takes the innermost ranks of those dimensions, and its size must divide their number.
  /// Throws on sizes below 1, repeated names, views over unknown dimensions and views whose size does not fit.
  explicit Mesh(const std::vector<std::pair<std::string, int>>& dims,
                std::source_location loc = std::source_location::current());
  Mesh(std::initializer_list<std::pair<std::string, int>> dims,
       std::source_location loc = std::source_location::current())
      : Mesh(std::vector<std::pair<std::string, int>>(dims), loc) {}
  /// Reads "dp2,fsdp2,ep4(dp,fsdp)"; "" is one rank. Throws InvalidArgument with the column and the text needed there.
  /// If `loc` is empty, errors name no line: for text of a flag or a file.
  static Mesh parse(std::string_view text, std::source_location loc = std::source_location::current());

  int size() const { return size_; }
  /// Dimensions and views, as given.
  const std::vector<Dim>& dims() const { return dims_; }
  /// Null if no dimension has this name.
  const Dim* find(std::string_view name) const;
  /// The axes of a list of names, "tp" or "dp,cp", the major one first; "world" is all and "" none. One axis of a
  /// dimension is written "tp:1". Throws NotFound with the names of the mesh's dimensions.
  Axes axes(std::string_view names) const;
  int num_axes() const { return static_cast<int>(axis_size_.size()); }
  int axis_size(int axis) const { return axis_size_[static_cast<size_t>(axis)]; }
  /// The number of ranks along these axes: the product of their sizes.
  int64_t parts(const Axes& axes) const;
  /// The names of axes in the form that axes() reads: "dp,cp".
  std::string name(const Axes& axes) const;

  /// The coordinate of a rank along these axes, flattened with the first axis as the major one.
  int64_t coordinate(int rank, const Axes& axes) const;
  int64_t coordinate(int rank, std::string_view names) const { return coordinate(rank, axes(names)); }
  /// The ranks that differ from `rank` only along these axes, by coordinate.
  std::vector<int> group(int rank, const Axes& axes) const;
  std::vector<int> group(int rank, std::string_view names) const { return group(rank, axes(names)); }

  /// "dp2,tp2", which parse() reads.
  std::string to_string() const;
  friend bool operator==(const Mesh& a, const Mesh& b) { return a.to_string() == b.to_string(); }

 private:
  int size_ = 1;
  std::vector<Dim> dims_;
  std::vector<int> axis_size_, axis_stride_;  // index: axis; strides in ranks
};

}  // namespace weft::dist
