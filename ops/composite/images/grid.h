// Evenly spaced numbers, and the points of grids.
#pragma once
#include <string_view>
#include <vector>

#include "ops/core/creation.h"

namespace weft {

/// `steps` numbers from start to end, both included, at equal distances; computed in f64.
Tensor linspace(double start, double end, int64_t steps, const TensorOptions& options = {},
                std::source_location loc = std::source_location::current());
/// base to the power of linspace(start, end, steps).
Tensor logspace(double start, double end, int64_t steps, double base = 10, const TensorOptions& options = {},
                std::source_location loc = std::source_location::current());
/// i64 [2, count]: rows and columns of the elements on and below (tril) or above (triu) the diagonal of a matrix, in
/// row-major order.
Tensor tril_indices(int64_t rows, int64_t columns, int64_t diagonal = 0,
                    const TensorOptions& options = {.dtype = kInt64},
                    std::source_location loc = std::source_location::current());
Tensor triu_indices(int64_t rows, int64_t columns, int64_t diagonal = 0,
                    const TensorOptions& options = {.dtype = kInt64},
                    std::source_location loc = std::source_location::current());

/// One tensor for each 1-d tensor of xs, all of shape [size of xs[0], size of xs[1], ...]: tensor k varies along dim k.
/// The indexing "xy" exchanges the first two dims.
std::vector<Tensor> meshgrid(const std::vector<Tensor>& xs, std::string_view indexing = "ij",
                             std::source_location loc = std::source_location::current());
/// Every choice of one element from each 1-d tensor: [number of choices, number of tensors]; of one tensor, itself.
Tensor cartesian_prod(const std::vector<Tensor>& xs, std::source_location loc = std::source_location::current());
/// Every choice of r elements of a 1-d x, in order of position: [number of choices, r].
Tensor combinations(const Arg& x, int64_t r = 2, bool with_replacement = false);

}  // namespace weft
