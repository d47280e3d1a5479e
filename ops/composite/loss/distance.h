// Norms of vectors, and distances between them. 16-bit floats are computed in f32 and rounded once. Gradients are 0
// where a norm is 0.
#pragma once
#include <string_view>

#include "framework/dispatch/arg.h"
#include "ops/core/reductions/reduce.h"

namespace weft {

/// sum(|x|^p)^(1 / p) over dims; p = 0 counts the elements that are not 0; p = +-infinity: the largest, smallest |x|.
/// The squares of p = 2 are not scaled: f32 overflows above 1.8e19.
Tensor norm(const Arg& x, double p = 2, const Dims& dims = {}, bool keepdim = false);
/// x divided by its norm along dim, or by eps where the norm is smaller.
Tensor normalize(const Arg& x, double p = 2, int64_t dim = 1, double eps = 1e-12);
/// a b / (|a| |b|) summed along dim; norms below eps count as eps.
Tensor cosine_similarity(const Arg& a, const Arg& b, int64_t dim = 1, double eps = 1e-8);
/// The norm of a - b + eps along the last dim.
Tensor pairwise_distance(const Arg& a, const Arg& b, double p = 2, double eps = 1e-6, bool keepdim = false);
/// The distances [..., P, R] of the rows of a [..., P, M] from the rows of b [..., R, M]. p = 2 is one product, |a|^2 +
/// |b|^2 - 2 a b, if P or R is above 25 (or always, or never, as compute_mode says with PyTorch's words): fast, but the
/// square has the error of |a|^2. All others are sums over [..., P, R, M], which a compiled function makes one kernel.
Tensor cdist(const Arg& a, const Arg& b, double p = 2,
             std::string_view compute_mode = "use_mm_for_euclid_dist_if_necessary");

}  // namespace weft
