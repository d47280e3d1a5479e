// Joins, splits, repeats and turns of tensors, in PyTorch's names.
#pragma once
#include <concepts>
#include <vector>

#include "ops/core/indexing/view.h"

namespace weft {

/// x with 1, 2 or 3 dims at least: [] -> [1] -> [1, n] -> [1, n, 1], [m, n] -> [m, n, 1].
Tensor atleast_1d(const Arg& x);
Tensor atleast_2d(const Arg& x);
Tensor atleast_3d(const Arg& x);

/// Joins along dim 0 (vstack, of at least 2-d tensors), dim 1 (hstack; vectors: dim 0), or dim 2 (dstack, of at least
/// 3-d tensors); column_stack takes vectors as columns of a matrix.
Tensor vstack(const std::vector<Tensor>& xs, std::source_location loc = std::source_location::current());
Tensor hstack(const std::vector<Tensor>& xs, std::source_location loc = std::source_location::current());
Tensor dstack(const std::vector<Tensor>& xs, std::source_location loc = std::source_location::current());
Tensor column_stack(const std::vector<Tensor>& xs, std::source_location loc = std::source_location::current());
/// The matrices (vectors are rows) along the diagonal of a matrix that is zero elsewhere.
Tensor block_diag(const std::vector<Tensor>& xs, std::source_location loc = std::source_location::current());

/// x repeated times[d] times along each dim; times has one entry for each dim of x; more entries in front add new dims.
Tensor repeat(const Arg& x, const Shape& times);
/// The same, where times may also be shorter: it counts from the last dim.
Tensor tile(const Arg& x, const Shape& times);

/// Same as transpose.
Tensor swapaxes(const Arg& x, int64_t a, int64_t b);
Tensor swapdims(const Arg& x, int64_t a, int64_t b);
/// Moves dims from[i] to the positions to[i]; the other dims keep their order.
Tensor moveaxis(const Arg& x, const Shape& from, const Shape& to);
/// Same as flatten(x).
Tensor ravel(const Arg& x);
/// Splits dim into these extents; one may be -1.
Tensor unflatten(const Arg& x, int64_t dim, const Shape& sizes);

/// Reverses the order of the columns (dim 1) or of the rows (dim 0).
Tensor fliplr(const Arg& x);
Tensor flipud(const Arg& x);
/// Turns x k times by 90 degrees in the plane of two dims, from the first to the second.
Tensor rot90(const Arg& x, int64_t k = 1, const Shape& dims = {0, 1});

/// Pads by pairs (before, after) from the last dim backwards. `mode` is "constant" (zeros), "reflect" (mirrored without
/// the edge itself; widths below the extent), "replicate" (the edge) or "circular" (from the other end; widths up to
/// the extent). Negative widths cut.
Tensor pad(const Arg& x, const std::vector<int64_t>& pads, std::string_view mode);

/// x[start : start + length] along dim; start counts from the end if negative. Throws OutOfRange.
Tensor narrow(const Arg& x, int64_t dim, int64_t start, int64_t length);
/// The pieces between these positions along dim, each counted from the end if negative.
std::vector<Tensor> tensor_split(const Arg& x, const std::vector<int64_t>& positions, int64_t dim = 0);
namespace internal {
std::vector<Tensor> equal_pieces(const Arg& x, int64_t n, int64_t dim);
}
/// n pieces along dim whose extents differ by 1 at most, the larger first.
template <std::integral I>
std::vector<Tensor> tensor_split(const Arg& x, I n, int64_t dim = 0) {  // a template, so that {2} is a position
  return internal::equal_pieces(x, n, dim);
}
/// All tensors broadcast to one shape.
std::vector<Tensor> broadcast_tensors(const std::vector<Tensor>& xs,
                                      std::source_location loc = std::source_location::current());

/// Slice i along dim (default: element i of the flattened x) repeated repeats[i] times in a row; one number in repeats
/// is for all. The extent depends on values, so repeats must have them: see nonzero.
Tensor repeat_interleave(const Arg& x, const Tensor& repeats, int64_t dim);
Tensor repeat_interleave(const Arg& x, const Tensor& repeats);

}  // namespace weft
