// Views and other moves of elements, without arithmetic. Negative dims and Python's slicing rules as in PyTorch.
#pragma once
#include <concepts>
#include <span>
#include <vector>

#include "framework/dispatch/arg.h"
#include "framework/ir/op_def.h"

namespace weft {

/// The same elements in row-major order; one extent may be -1.
Tensor reshape(const Arg& x, const Shape& shape);
/// Same as reshape.
Tensor view(const Arg& x, const Shape& shape);
/// Dim i of the result is dim dims[i] of x.
Tensor permute(const Arg& x, const Shape& dims);
Tensor transpose(const Arg& x, int64_t a, int64_t b);
/// The transpose of a matrix; a vector is returned unchanged.
Tensor t(const Arg& x);
/// Moves dim `from` to position `to`; the other dims keep their order.
Tensor movedim(const Arg& x, int64_t from, int64_t to);
/// NumPy broadcasting, dims aligned on the right; throws if x does not broadcast to shape.
Tensor broadcast_to(const Tensor& x, const Shape& shape, SourceLine line = {});
/// Broadcasts extents of 1; -1 keeps x's extent; adds new dims in front.
Tensor expand(const Arg& x, const Shape& shape);
/// Removes dim if its extent is 1; without `dim`, removes all dims of extent 1.
Tensor squeeze(const Arg& x, int64_t dim);
Tensor squeeze(const Arg& x);
/// Inserts a dim of extent 1 at `dim`.
Tensor unsqueeze(const Arg& x, int64_t dim);
/// Merges dims begin to end (inclusive) into one.
Tensor flatten(const Arg& x, int64_t begin = 0, int64_t end = -1);
/// Elements begin, begin + step, ... below end along dim. Negative bounds count from the end; all bounds are clamped;
/// step >= 1.
Tensor slice(const Arg& x, int64_t dim, int64_t begin, int64_t end, int64_t step = 1);
/// x[..., index, ...], without dim; throws OutOfRange.
Tensor select(const Arg& x, int64_t dim, int64_t index);
/// A copy of x in row-major memory; x itself if it is already row-major.
Tensor contiguous(const Arg& x);

/// Pads by pairs (before, after) from the last dim backwards, as torch.nn.functional.pad; negative numbers crop.
Tensor pad(const Arg& x, const std::vector<int64_t>& pads, double value = 0);

/// Joins tensors along dim (cat) or along a new dim (stack); dtypes are promoted.
Tensor concat(const std::vector<Tensor>& xs, int64_t dim, SourceLine line);
inline Tensor cat(const std::vector<Tensor>& xs, std::source_location loc = std::source_location::current()) {
  return concat(xs, 0, loc);
}
template <std::integral I>
Tensor cat(const std::vector<Tensor>& xs, I dim, std::source_location loc = std::source_location::current()) {
  return concat(xs, dim, loc);
}
Tensor stack(const std::vector<Tensor>& xs, int64_t dim = 0,
             std::source_location loc = std::source_location::current());
/// Pieces of `size` along dim (the last may be smaller), or of the given sizes.
std::vector<Tensor> split(const Arg& x, int64_t size, int64_t dim = 0);
std::vector<Tensor> split(const Arg& x, const std::vector<int64_t>& sizes, int64_t dim = 0);
/// At most n pieces of equal size (the last may be smaller).
std::vector<Tensor> chunk(const Arg& x, int64_t n, int64_t dim = 0);
/// The slices along dim, without dim.
std::vector<Tensor> unbind(const Arg& x, int64_t dim = 0);

/// The elements of the last two dims on and below (tril) or above (triu) the given diagonal; zero elsewhere.
Tensor tril(const Arg& x, int64_t diagonal = 0);
Tensor triu(const Arg& x, int64_t diagonal = 0);
/// Moves elements shifts[i] positions up along dims[i]; elements moved out enter at the other end. Without dims, there
/// is one shift, of the flattened tensor.
Tensor roll(const Arg& x, const Shape& shifts, const Shape& dims = {});
/// Reverses x along these dims.
Tensor flip(const Arg& x, const Shape& dims);
/// Repeats each slice along dim n times in a row: [a, b] -> [a, a, b, b].
Tensor repeat_interleave(const Arg& x, int64_t n, int64_t dim);
/// The same for the elements of the flattened tensor.
Tensor repeat_interleave(const Arg& x, int64_t n);

extern const OpDef reshape_op;     // {shape}
extern const OpDef permute_op;     // {dims}
extern const OpDef broadcast_op;   // {shape}
extern const OpDef slice_op;       // {begin, end, step}: one entry per dim
extern const OpDef pad_op;         // {lo, hi, interior?, value}: one entry per dim; interior: values between neighbours
extern const OpDef concat_op;      // (x...) {dim}
extern const OpDef contiguous_op;  // eager only: a graph value has no strides
std::span<const OpDef* const> view_ops();

}  // namespace weft
