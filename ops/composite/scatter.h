// Elements written at run-time positions. A copy of x is changed; x itself never is.
#pragma once
#include <string_view>

#include "framework/dispatch/arg.h"

namespace weft {

/// A copy of x, with x[index[i][j]][j] = src[i][j] for dim 0 (other dims alike); src is a number, or at least as large
/// as index. If an element is written twice, the last value stays, and only it has a gradient.
Tensor scatter(const Arg& x, int64_t dim, const Arg& index, const Arg& src);
/// The same with "sum", "prod", "mean", "amax" or "amin" of the values for an element, and of x's own value if
/// include_self; elements without values stay x's. Equal amax and amin share the gradient equally.
Tensor scatter_reduce(const Arg& x, int64_t dim, const Arg& index, const Arg& src, std::string_view reduce,
                      bool include_self = true);
/// A copy of x, with the slices index[i] along dim = value, a number or a 0-d tensor.
Tensor index_fill(const Arg& x, int64_t dim, const Arg& index, const Arg& value);

/// A copy of x [m, n], or of n equal extents, with its diagonal = value, a number or a 0-d tensor; `wrap` starts the
/// diagonal of a tall matrix again after each n + 1 rows.
Tensor fill_diagonal(const Arg& x, const Arg& value, bool wrap = false);
/// A copy of x, with the elements where the bool mask is true replaced by source's elements, in order; x and mask
/// broadcast. Throws if source has fewer elements, in compiled functions when they run.
Tensor masked_scatter(const Arg& x, const Arg& mask, const Arg& source);

/// The elements of the flattened x at the positions in the flattened index: 1-d; negative ones count from the end.
Tensor take_along_dim(const Arg& x, const Arg& index);
/// The elements of the flattened x at these positions, in index's shape; negative ones count from the end.
Tensor take(const Arg& x, const Arg& index);
/// A copy of x, with its elements at these positions of the flattened x replaced by source's elements, or with these
/// added. If an element is written twice, the last value stays (accumulate: all are added).
Tensor put(const Arg& x, const Arg& index, const Arg& source, bool accumulate = false);

}  // namespace weft
