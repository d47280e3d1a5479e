// Look-ups in sorted numbers, and distinct values.
#pragma once
#include "ops/core/indexing/index.h"

namespace weft {

struct SearchOptions {
  bool out_int32 = false;  // the result is i32, not i64
  bool right = false;      // after equal numbers, not before them
};
/// Where to insert each of `values` so that `sorted` stays ascending along the last dim: the number of elements below
/// the value, or not above it with `right`. sorted is 1-d, or has values' dims before the last. NaN is greater than all
/// numbers.
Tensor searchsorted(const Arg& sorted, const Arg& values, const SearchOptions& options = {});
/// searchsorted of x in 1-d boundaries.
Tensor bucketize(const Arg& x, const Arg& boundaries, const SearchOptions& options = {});
/// bool, x's shape: whether each element occurs in `test`; with `invert` whether it does not.
Tensor isin(const Arg& x, const Arg& test, bool invert = false);

struct Unique {
  Tensor values;   // 1-d: the distinct values
  Tensor inverse;  // i64, x's shape: the position of each element's value
  Tensor counts;   // i64: how often each value occurs
};
/// The distinct values of x, ascending. Their number depends on values, so x must have them: see nonzero.
Unique unique(const Arg& x);
/// The same for runs of equal neighbours in the flattened x, in their order.
Unique unique_consecutive(const Arg& x);
/// The distinct slices of x along dim, in lexicographic order (unique_consecutive: runs of equal neighbours, in their
/// order); values are [count, ...] along dim, inverse and counts are of slices. NaN differs from NaN.
Unique unique(const Arg& x, int64_t dim);
Unique unique_consecutive(const Arg& x, int64_t dim);
/// one_hot(x, max(x) + 1); x, not empty and of 0 or more, must have values: see nonzero.
Tensor one_hot(const Arg& x);
/// How often each of 0 to max(x) occurs in a 1-d x of integers, i64 [max(max(x) + 1, minlength)]. If weights, of x's
/// shape, are given: the sum of the weights instead, f32 for f32 weights, otherwise f64. x must have values: see
/// nonzero; histogram needs none.
Tensor bincount(const Arg& x, const Tensor& weights = {}, int64_t minlength = 0);

}  // namespace weft
