// StridedView: a kernel's view of a tensor. Non-owning; strides in elements, 0 for broadcast dims.
#pragma once
#include "framework/tensor/dtype.h"
#include "framework/tensor/shape.h"

namespace weft {

struct StridedView {
  void* data = nullptr;
  DType dtype = kFloat32;
  Shape shape;
  Shape strides;
  int64_t numel() const { return shape.numel(); }
  int64_t nbytes() const { return numel() * itemsize(dtype); }
  bool contiguous() const { return is_contiguous(shape, strides); }
  template <class T>
  T* as() const {
    return static_cast<T*>(data);
  }
};

}  // namespace weft
