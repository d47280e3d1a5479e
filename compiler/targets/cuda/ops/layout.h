// Walks strided views in row-major order with as few dims as possible, and the device functions that locate elements.
#pragma once
#include <initializer_list>
#include <string_view>
#include <vector>

#include "compiler/targets/cuda/ops/launches.h"
#include "framework/tensor/view.h"

namespace weft::cuda {

/// The points of a shape and their places in some views. Dims of one element are removed; dims that are adjacent in
/// memory in all views are merged. At least one dim remains.
struct Walk {
  Shape shape;
  std::vector<Shape> strides;
  int64_t n = 0;

  Walk(const Shape& shape, std::initializer_list<Shape> strides);
  int rank() const { return shape.size(); }
  /// Whether a position may exceed 32 bits.
  bool wide() const;
  /// Declares kRank, `n`, `shape` and the strides under these names.
  void declare(Text& text, std::initializer_list<std::string_view> names) const;
  /// Declares the rank, the shape and the strides under these names, for kernels that walk more than one shape.
  void declare(Text& text, std::string_view rank, std::string_view shape,
               std::initializer_list<std::string_view> names) const;
};

/// The kept dims and the reduced dims of a reduction's operand.
struct Reduced {
  Shape kept, kept_strides, reduced, reduced_strides;
  Reduced(const StridedView& x, const Shape& dims);
};

/// The type in which sums of a dtype are computed: f64, f32 or i64.
inline DType sums_of(DType t) { return t == kFloat64 ? kFloat64 : is_floating(t) ? kFloat32 : kInt64; }
/// Whether positions of a view may exceed 32 bits.
bool is_wide(const StridedView& v);
/// The strides of a view, with 0 for dims of one element, which may be read at any index.
Shape broadcast_strides(const StridedView& v);

/// s without dim `dim`.
Shape without(Shape s, int dim);
/// The number of elements of a view's shape after dim `dim`.
int64_t elements_behind(const StridedView& v, int dim);

/// offset_of<kRank>(i, shape, stride): the place of point i of a row-major walk.
extern const std::string_view kOffsetFunctions;
/// checked(v, limit, position, bad): v, or 0 and a report if it is out of range. position_of(line, i, length, inner):
/// the row-major position of an element of a line.
extern const std::string_view kCheckFunctions;
/// write(T& y, v): v converted to an element like a cast.
extern const std::string_view kWriteFunctions;

}  // namespace weft::cuda
