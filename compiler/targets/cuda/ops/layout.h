// Strided views walked in row-major order with as few dims as possible, and the words that kernels find elements with.
#pragma once
#include <initializer_list>
#include <string_view>
#include <vector>

#include "compiler/targets/cuda/ops/launches.h"
#include "framework/tensor/view.h"

namespace weft::cuda {

/// Points of a shape and where each lies in some views: dims of one element are gone, dims that lie one in the other in
/// all views are one. At least one dim.
struct Walk {
  Shape shape;
  std::vector<Shape> strides;
  int64_t n = 0;

  Walk(const Shape& shape, std::initializer_list<Shape> strides);
  int rank() const { return shape.size(); }
  /// A position may be beyond 32 bits.
  bool wide() const;
  /// Declares kRank, `n`, `shape` and the strides under these names.
  void declare(Text& text, std::initializer_list<std::string_view> names) const;
  /// Declares the rank, the shape and the strides under these names: of kernels that walk more than one shape.
  void declare(Text& text, std::string_view rank, std::string_view shape,
               std::initializer_list<std::string_view> names) const;
};

/// A view's dims that a reduction keeps and those it takes together.
struct Reduced {
  Shape kept, kept_strides, reduced, reduced_strides;
  Reduced(const StridedView& x, const Shape& dims);
};

/// What sums of a dtype are computed in: f64, f32, or i64.
inline DType sums_of(DType t) { return t == kFloat64 ? kFloat64 : is_floating(t) ? kFloat32 : kInt64; }
/// Whether positions of a view are beyond 32 bits.
bool is_wide(const StridedView& v);
/// Strides of a view where dims of one element may be read at any index: 0 there.
Shape broadcast_strides(const StridedView& v);

/// The other dims.
Shape without(Shape s, int dim);
/// Elements of a view's shape behind dim `dim`.
int64_t elements_behind(const StridedView& v, int dim);

/// offset_of<kRank>(i, shape, stride): where point i of a row-major walk lies.
extern const std::string_view kOffsetWords;
/// checked(v, limit, position, bad): v, or 0 and word of it where it is out of range; position_of(line, i, length,
/// inner): the row-major position of an element of a line.
extern const std::string_view kCheckWords;
/// write(T& y, v): v converted to an element as casts are.
extern const std::string_view kWriteWords;

}  // namespace weft::cuda
