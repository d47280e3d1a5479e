// Reductions made of others, and comparisons of whole tensors.
#pragma once
#include <concepts>
#include <optional>

#include "framework/dispatch/arg.h"
#include "ops/core/reductions/reduce.h"

namespace weft {

/// Values and their places along a dim, i64.
struct ValuesIndices {
  Tensor values, indices;
};

namespace internal {
ValuesIndices max_along(const Arg& x, int64_t dim, bool keepdim);
ValuesIndices min_along(const Arg& x, int64_t dim, bool keepdim);
/// An integer of the user as a dim: true and false are numbers.
template <class T>
concept DimNumber = std::integral<T> && !std::same_as<T, bool>;
}  // namespace internal

/// The largest (smallest) value of x; NaN if there is one; ties share the gradient. Throws if x is empty.
Tensor max(const Arg& x);
Tensor min(const Arg& x);
/// The largest (smallest) values along dim with their indices, the first of equal ones; NaN before all numbers.
template <internal::DimNumber I>
ValuesIndices max(const Arg& x, I dim, bool keepdim = false) {
  return internal::max_along(x, dim, keepdim);
}
template <internal::DimNumber I>
ValuesIndices min(const Arg& x, I dim, bool keepdim = false) {
  return internal::min_along(x, dim, keepdim);
}
/// maximum(a, b) and minimum(a, b). A second integer is a dim: write maximum(x, 2) for a limit.
Tensor max(const Arg& a, const Arg& b);
Tensor min(const Arg& a, const Arg& b);
/// The same; where std::max is visible too, it would be the better match for two Tensors.
Tensor max(const Tensor& a, const Tensor& b, std::source_location loc = std::source_location::current());
Tensor min(const Tensor& a, const Tensor& b, std::source_location loc = std::source_location::current());

struct MinMax {
  Tensor min, max;
};
MinMax aminmax(const Arg& x);
MinMax aminmax(const Arg& x, int64_t dim, bool keepdim = false);

/// The number of elements that are not 0, i64.
Tensor count_nonzero(const Arg& x, const Dims& dims = {});
/// sum and mean of the elements that are not NaN; the mean of none is NaN.
Tensor nansum(const Arg& x, const Dims& dims = {}, bool keepdim = false);
Tensor nanmean(const Arg& x, const Dims& dims = {}, bool keepdim = false);

struct StdMean {
  Tensor std, mean;
};
struct VarMean {
  Tensor var, mean;
};
StdMean std_mean(const Arg& x, const Dims& dims = {}, double correction = 1, bool keepdim = false);
VarMean var_mean(const Arg& x, const Dims& dims = {}, double correction = 1, bool keepdim = false);

/// True where |a - b| <= atol + rtol |b|, or a = b; NaNs are close to each other only with equal_nan.
Tensor isclose(const Arg& a, const Arg& b, double rtol = 1e-5, double atol = 1e-8, bool equal_nan = false);
/// True if all elements are close. This and equal read the result, so they throw inside a compiled function.
bool allclose(const Arg& a, const Arg& b, double rtol = 1e-5, double atol = 1e-8, bool equal_nan = false,
              std::source_location loc = std::source_location::current());
/// True if a and b have one shape and equal elements.
bool equal(const Arg& a, const Arg& b);

}  // namespace weft
