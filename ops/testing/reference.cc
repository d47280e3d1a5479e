#include "ops/testing/reference.h"

#include <cmath>

namespace weft::testing {

RefFn find_reference(const OpDef& op) {
  for (auto table : {pointwise_references(), view_references(), reduce_references(), dot_references(),
                     index_references(), creation_references(), linear_cross_entropy_references(), moe_references(),
                     collective_references(), exact_references(), rounding_references()})
    for (const RefRow& row : table)
      if (row.op == op.name) return row.fn;
  return op.is(kPointwise) ? derived_reference() : nullptr;
}

Real rounding_bound(Real value, Real error, DType computed, DType out) {
  if (!is_floating(out)) return error;
  if (!std::isfinite(value)) return 0;
  Real bound = error + 2 * static_cast<Real>(tiny_roundoff(out));
  if (computed != out) bound += (std::fabs(value) + error) * unit_roundoff(out);
  return bound;
}

void Index::next() {
  --left_;
  for (int d = shape_.size() - 1; d >= 0; --d) {
    if (++at_[d] < shape_[d]) return;
    at_[d] = 0;
  }
}

int64_t flat_of(const Shape& shape, const Shape& index) {
  int64_t at = 0;
  for (int d = 0; d < shape.size(); ++d) at = at * shape[d] + index[d];
  return at;
}

}  // namespace weft::testing
