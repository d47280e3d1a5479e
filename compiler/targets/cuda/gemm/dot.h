// A dot as cuBLASLt computes it: the shape of the product, and the operands that must first be copied because of their
// strides. It depends only on attributes, types and strides.
#pragma once
#include <span>

#include "framework/cuda/libraries/cublaslt.h"
#include "framework/ir/attr.h"
#include "framework/tensor/view.h"

namespace weft::cuda {

/// How an operand reaches the product.
struct DotOperand {
  bool copy = false;  // copied to scratch first: dims in `order`, contiguous
  Shape order;        // a: batch, free, contracted; b: batch, contracted, free
  int64_t bytes = 0;  // size of the copy
};

struct Dot {
  MatmulShape product;  // extents are 1 without dims, 0 if a dim is empty
  DotOperand a, b;
  /// Whether the result has elements and the sums have terms, so that cuBLASLt is called. Otherwise the result is empty
  /// or all zeros.
  bool has_work() const { return product.batch > 0 && product.m > 0 && product.n > 0 && product.k > 0; }
};

/// Whether cuBLASLt computes products of this dtype.
inline bool cublaslt_takes(DType t) { return is_floating(t) && itemsize(t) > 1; }

/// The product (of any dtype: see cublaslt_takes) of operands with these types and strides (addresses are not read)
/// into a contiguous result of dtype `out`. Operands start on 256 bytes unless the caller lowers the alignments of
/// `product` afterwards.
Dot plan_dot(const Attrs& attrs, std::span<const StridedView> in, DType out);

}  // namespace weft::cuda
