// Turns a dot into one batched matrix product: dims are permuted and merged in place if the strides allow. Otherwise
// the operand is gathered while the product packs it, or copied once. Depends on attributes and strides only, so it can
// be made before memory is allocated.
#pragma once
#include <optional>
#include <span>

#include "framework/ir/attr.h"
#include "framework/tensor/view.h"
#include "ops/kernels/products/gemm.h"

namespace weft::internal {

/// The dims of an operand that are in neither list.
Shape free_dims(int rank, const Shape& batch, const Shape& contract);

/// Strides of a value of this shape in rows of `columns` neighbouring elements, in row-major order, `distance` elements
/// from one row to the next. None if no trailing dims are a row.
std::optional<Shape> strides_of_rows(const Shape& shape, int64_t columns, int64_t distance);
/// The distance between rows of this many elements of `size` bytes, padded so that each starts at a multiple of
/// `alignment` bytes: at a whole cache line where that costs at most an eighth more memory. There is no padding where
/// it would cost more than a quarter.
int64_t padded_distance(int64_t columns, int64_t size, int64_t alignment);
/// Elements from one row of a view to the next; none if the view has no such rows. `columns` if the view is contiguous.
/// The result of dot needs such rows.
std::optional<int64_t> row_distance(const StridedView& v, int64_t columns);

class DotProduct {
 public:
  /// Operands a and b of a dot with these attributes; their data is not read.
  DotProduct(const Attrs& attrs, std::span<const StridedView> in);

  /// The product: a[batch, m, k] x b[batch, k, n].
  int64_t batch() const { return a_.view.shape[0]; }
  int64_t m() const { return a_.view.shape[1]; }
  int64_t k() const { return a_.view.shape[2]; }
  int64_t n() const { return b_.view.shape[2]; }

  /// True if the operand's strides do not allow the product's three dims: operands() copies it.
  bool copies_a() const { return a_.copy; }
  bool copies_b() const { return b_.copy; }
  /// Strides of [batch, m, k] and [batch, k, n], for operands that are not copied.
  const Shape& a_strides() const { return a_.view.strides; }
  const Shape& b_strides() const { return b_.view.strides; }

  /// Bytes of scratch for copies.
  int64_t bytes() const { return a_.bytes() + b_.bytes(); }
  struct Operands {
    StridedView a, b;
  };
  /// The operands as [batch, m, k] and [batch, k, n], copied to `scratch` if necessary.
  Operands operands(const StridedView& a, const StridedView& b, void* scratch) const;

  /// The operands that kernels::gemm gathers without copies, and the bytes of the other copies.
  kernels::GemmFilled gathered() const { return {a_.gathers(), b_.gathers()}; }
  int64_t gemm_bytes() const { return (a_.gathers() ? 0 : a_.bytes()) + (b_.gathers() ? 0 : b_.bytes()); }
  class GemmOperands;

 private:
  // Three groups of dims, in this order, merged into three dims; `copy` if the strides do not allow that.
  struct Merged {
    StridedView view;
    Shape dims;
    int ends[3];  // ends of the groups in `dims`
    bool copy = false;
    bool gathers() const { return copy && (view.dtype == kFloat32 || is_16bit(view.dtype)); }
    int64_t bytes() const { return copy ? (view.nbytes() + 63) / 64 * 64 : 0; }
  };
  static Merged merge(const StridedView& in, const Shape& first, const Shape& second, const Shape& third);
  static StridedView laid_out(const StridedView& in, const Merged& m, void* scratch);

  Merged a_, b_;
};

/// The operands of one call of gemm: memory, or fills that gather them. Must outlive the call.
class DotProduct::GemmOperands {
  // The elements of an operand, by index in its three groups of dims.
  struct Gather {
    const char* data = nullptr;
    int64_t size = 0;
    Shape extents[3], strides[3];
    bool columns = false;  // pieces are written by columns
    kernels::GemmFill fill;
    static void run(const void* context, int64_t batch, int64_t row, int64_t col, int64_t rows, int64_t cols, void* out,
                    int64_t ld);
  };
  static StridedView place(const StridedView& in, const Merged& m, void* scratch, Gather& gather);
  bool in_panels() const;
  Gather gather_[2];

 public:
  GemmOperands(const DotProduct& p, const StridedView& a, const StridedView& b, void* scratch);
  GemmOperands(const GemmOperands&) = delete;
  /// Adds the fills of gathered operands.
  void add_to(kernels::GemmHooks& hooks) const;

  const StridedView a, b;
};

}  // namespace weft::internal
