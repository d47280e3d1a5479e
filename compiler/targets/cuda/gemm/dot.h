// A dot as cuBLASLt computes it: which product it is, and which operands have strides that must be made plain first.
// Follows from attributes, types and strides alone.
#pragma once
#include <span>

#include "framework/cuda/cublaslt.h"
#include "framework/ir/attr.h"
#include "framework/tensor/view.h"

namespace weft::cuda {

/// How an operand reaches the product.
struct DotOperand {
  bool copy = false;  // first copied to scratch: dims in `order`, contiguous
  Shape order;        // batch, free, contracted of a; batch, contracted, free of b
  int64_t bytes = 0;  // of the copy
};

struct Dot {
  MatmulShape product;  // extents of 1 where there are no dims; 0 if a dim is empty
  DotOperand a, b;
  /// The result has elements, and sums have terms: cuBLASLt is called. Else the result is empty or all zeros.
  bool has_work() const { return product.batch > 0 && product.m > 0 && product.n > 0 && product.k > 0; }
};

/// Whether cuBLASLt computes products of this dtype.
inline bool cublaslt_takes(DType t) { return is_floating(t) && itemsize(t) > 1; }

/// The product (of any dtype: see cublaslt_takes) of operands with these types and strides (addresses are not read)
/// into a contiguous result of `out`. Operands start on 256 bytes unless the alignments of `product` are lowered
/// afterwards.
Dot plan_dot(const Attrs& attrs, std::span<const StridedView> in, DType out);

/// The alignment that an address has, as MatmulShape takes it.
int alignment_of(const void* address);

}  // namespace weft::cuda
