// Order statistics, histograms and covariances. As in PyTorch, NaN is greater than all numbers.
#pragma once
#include <optional>
#include <string_view>

#include "ops/composite/math/reduction.h"
#include "ops/core/indexing/index.h"

namespace weft {

/// The middle value along dim, the lower of two; NaN if there is one (nanmedian: of the others, NaN if there are none).
/// Without dim, the median of all elements, 0-d.
ValuesIndices median(const Arg& x, int64_t dim, bool keepdim = false);
Tensor median(const Arg& x);
ValuesIndices nanmedian(const Arg& x, int64_t dim, bool keepdim = false);
Tensor nanmedian(const Arg& x);
/// The k-th smallest value along dim, k from 1.
ValuesIndices kthvalue(const Arg& x, int64_t k, int64_t dim = -1, bool keepdim = false);
/// The most frequent value along dim, the smallest of several, and its last index.
ValuesIndices mode(const Arg& x, int64_t dim = -1, bool keepdim = false);
/// x sorted along dim 0.
Tensor msort(const Arg& x);

/// The value below which a part q of the elements is, by position q * (n - 1) in the sorted elements along dim
/// (default: in all elements). Between two elements: "linear", "lower", "higher", "midpoint" or "nearest". q is from
/// 0 to 1: a number, or a 1-d tensor, which gives its dim in front. NaN where x has one.
Tensor quantile(const Arg& x, const Arg& q, std::optional<int64_t> dim = {}, bool keepdim = false,
                std::string_view interpolation = "linear");

/// The number of elements in each of `bins` equal parts of [min, max], in x's dtype; both 0: of x's own range. Elements
/// outside do not count.
Tensor histc(const Arg& x, int64_t bins = 100, double min = 0, double max = 0);

struct CovOptions {
  double correction = 1;  // the sum of products is divided by (observations - correction)
  Tensor fweights = {};   // 1-d integers: how often each observation counts
  Tensor aweights = {};   // 1-d: the weight of each observation
};
/// The covariances of the rows of x [variables, observations]: [variables, variables]; of one variable, and of a 1-d
/// x, the variance, 0-d.
Tensor cov(const Arg& x, const CovOptions& options = {});
/// The correlations of the rows, from -1 to 1; 1, 0-d, for one variable.
Tensor corrcoef(const Arg& x);

}  // namespace weft
