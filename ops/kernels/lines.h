// The lines of a view along one dim, numbered in row-major order of the other dims.
#pragma once
#include <cstdint>

#include "framework/tensor/view.h"

namespace weft::kernels {

struct StridedLines {
  int64_t length, stride;  // elements of a line and the distance between them
  int64_t count = 1;       // lines
  Shape shape, strides;    // extents and strides of the other dims

  StridedLines(const StridedView& v, int dim) : length(v.shape[dim]), stride(v.strides[dim]) {
    for (int d = 0; d < v.shape.size(); ++d) {
      if (d == dim) continue;
      shape.push_back(v.shape[d]);
      strides.push_back(v.strides[d]);
      count *= v.shape[d];
    }
  }
  /// The number of consecutive lines at a constant distance (along the last other dim), and that distance.
  int64_t neighbours() const { return shape.empty() ? 1 : shape.back(); }
  int64_t next_line() const { return strides.empty() ? 0 : strides.back(); }
  /// Elements from the view's start to the first element of a line.
  int64_t offset(int64_t line) const {
    int64_t o = 0;
    for (int d = shape.size() - 1; d >= 0; --d) {
      o += line % shape[d] * strides[d];
      line /= shape[d];
    }
    return o;
  }
  char* at(const StridedView& v, int64_t line, int64_t element) const {
    return static_cast<char*>(v.data) + (offset(line) + element * stride) * itemsize(v.dtype);
  }
};

}  // namespace weft::kernels
