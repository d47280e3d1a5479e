// References: each op again, as plain loops in extended precision, sharing no code with the kernels. A result has a
// bound on the error of a correct kernel, derived from dtype and number of roundings.
#pragma once
#include <string_view>

#include "framework/ir/op_def.h"
#include "framework/testing/values.h"

namespace weft::testing {

/// An operand: exact values in row-major order.
struct RefTensor {
  TensorType type;
  std::vector<Real> v;
  int64_t numel() const { return static_cast<int64_t>(v.size()); }
  int rank() const { return type.shape.size(); }
};

/// One result: values, and the largest allowed difference of each; no bounds: exact.
struct RefResult {
  std::vector<Real> v;
  std::vector<Real> bound;
};

struct RefCall {
  const OpDef& op;
  const Attrs& attrs;
  std::span<const RefTensor> in;
  std::span<const TensorType> out;
  /// The dtype in which kernels compute this result: f32 for 16-bit floats.
  DType computed(int result = 0) const {
    DType t = out[result].dtype;
    return t == kBFloat16 || t == kFloat16 ? kFloat32 : t;
  }
};
using RefFn = std::vector<RefResult> (*)(const RefCall&);

/// One row of a family's table.
struct RefRow {
  std::string_view op;
  RefFn fn;
};

/// The reference of an op; derived_reference() for an elementwise op without its own reference; otherwise null.
RefFn find_reference(const OpDef& op);

/// For elementwise ops without their own reference: the row's scalar expression in f64.
RefFn derived_reference();

// The families' tables.
std::span<const RefRow> pointwise_references();
std::span<const RefRow> view_references();
std::span<const RefRow> reduce_references();
std::span<const RefRow> dot_references();
std::span<const RefRow> index_references();
std::span<const RefRow> creation_references();
std::span<const RefRow> collective_references();
std::span<const RefRow> linear_cross_entropy_references();
std::span<const RefRow> moe_references();
std::span<const RefRow> exact_references();
std::span<const RefRow> rounding_references();

/// Bound of a value that is computed with an absolute error of `error` and then rounded to `out`.
Real rounding_bound(Real value, Real error, DType computed, DType out);

/// Walks the indices of a shape in row-major order: for (Index i(shape); i.valid(); i.next()).
class Index {
 public:
  explicit Index(const Shape& shape) : shape_(shape), at_(Shape::filled(shape.size(), 0)), left_(shape.numel()) {}
  bool valid() const { return left_ > 0; }
  void next();
  int64_t operator[](int d) const { return at_[d]; }
  const Shape& at() const { return at_; }
  /// Position of the current index in row-major order.
  int64_t flat() const { return shape_.numel() - left_; }

 private:
  Shape shape_, at_;
  int64_t left_;
};
/// Row-major position of an index.
int64_t flat_of(const Shape& shape, const Shape& index);

}  // namespace weft::testing
