// How a dot becomes one batched matrix product: dims are permuted and merged in place where strides allow, else the
// operand is copied once. Follows from attributes and strides alone, so it can be made before there is memory.
#pragma once
#include <span>

#include "framework/ir/attr.h"
#include "framework/tensor/view.h"

namespace weft::internal {

class DotProduct {
 public:
  /// Operands a and b of a dot with these attributes; their addresses are not read.
  DotProduct(const Attrs& attrs, std::span<const StridedView> in);

  /// The product: a[batch, m, k] x b[batch, k, n].
  int64_t batch() const { return a_.view.shape[0]; }
  int64_t m() const { return a_.view.shape[1]; }
  int64_t k() const { return a_.view.shape[2]; }
  int64_t n() const { return b_.view.shape[2]; }

  /// The operand's strides do not allow the product's three dims: operands() copies it.
  bool copies_a() const { return a_.copy; }
  bool copies_b() const { return b_.copy; }
  /// Strides of [batch, m, k] and [batch, k, n], of operands that are not copied.
  const Shape& a_strides() const { return a_.view.strides; }
  const Shape& b_strides() const { return b_.view.strides; }

  /// Scratch for copies.
  int64_t bytes() const { return a_.bytes() + b_.bytes(); }
  struct Operands {
    StridedView a, b;
  };
  /// The operands as [batch, m, k] and [batch, k, n], copied to `scratch` where they must be.
  Operands operands(const StridedView& a, const StridedView& b, void* scratch) const;

 private:
  // Three groups of dims, in this order, shown as three dims; `copy` if strides do not allow that.
  struct Merged {
    StridedView view;
    Shape dims;
    bool copy = false;
    int64_t bytes() const { return copy ? (view.numel() * itemsize(view.dtype) + 63) / 64 * 64 : 0; }
  };
  static Merged merge(const StridedView& in, const Shape& first, const Shape& second, const Shape& third);
  static StridedView laid_out(const StridedView& in, const Merged& m, void* scratch);

  Merged a_, b_;
};

}  // namespace weft::internal
