// Elements selected by run-time integers (i64 or i32), and sorting. An index out of range throws OutOfRange. A 0-d x
// has one dim, 0 or -1, as in PyTorch.
#pragma once
#include <initializer_list>
#include <span>
#include <string_view>
#include <vector>

#include "framework/dispatch/arg.h"
#include "framework/ir/op_def.h"

namespace weft {

/// For dim 0 (other dims alike): out[i][j] = x[index[i][j]][j]. index has x's rank and may be smaller in the other
/// dims.
Tensor gather(const Arg& x, int64_t dim, const Arg& index);
/// gather, with index and x broadcast against each other in the other dims; negative positions count from the end.
Tensor take_along_dim(const Arg& x, const Arg& index, int64_t dim);
/// x's slices along dim, in the order of a 1-d index.
Tensor index_select(const Arg& x, int64_t dim, const Arg& index);
/// A copy of x, with x[index[i][j]][j] += src[i][j] for dim 0 (other dims alike), in order of position.
Tensor scatter_add(const Arg& x, int64_t dim, const Arg& index, const Arg& src);
/// A copy of x, with slice index[i] along dim += alpha * slice i of src.
Tensor index_add(const Arg& x, int64_t dim, const Arg& index, const Arg& src, const Arg& alpha = 1);
/// A copy of x, with slice index[i] along dim = slice i of src, in order of position: of several writes, the last stays
/// and has the gradient.
Tensor index_copy(const Arg& x, int64_t dim, const Arg& index, const Arg& src);
/// weight[indices[...]]: [..., D] for weight [V, D].
Tensor embedding(const Arg& indices, const Arg& weight);
/// i64 [..., classes]: 1 where the class is x, otherwise 0; a class outside [0, classes) gives zeros.
Tensor one_hot(const Arg& x, int64_t classes);
/// The number of times that each of 0 to bins - 1 occurs in x, i64 [bins].
Tensor histogram(const Arg& x, int64_t bins);
/// value, converted to x's dtype, where mask is true, otherwise x; a fraction does not fit an integer x.
Tensor masked_fill(const Arg& x, const Arg& mask, const Arg& value);
/// The positions of the nonzero elements in row-major order, i64 [count, dims of x]. The count depends on values, so x
/// must have values: a compiled function must not compute x itself.
Tensor nonzero(const Arg& x);
/// The elements of x where the bool mask is true, 1-d; x and mask broadcast. As for nonzero, mask must have values.
Tensor masked_select(const Arg& x, const Arg& mask);

/// x with the block at starts (one integer or 0-d integer tensor per dim) replaced by update; the block must be inside
/// x.
Tensor dynamic_update_slice(const Arg& x, const Arg& update, std::initializer_list<Arg> starts);
Tensor dynamic_update_slice(const Arg& x, const Arg& update, std::span<const Tensor> starts, SourceLine line = {});
/// The block with these sizes at starts.
Tensor dynamic_slice(const Arg& x, std::initializer_list<Arg> starts, const Shape& sizes);
Tensor dynamic_slice(const Arg& x, std::span<const Tensor> starts, const Shape& sizes, SourceLine line = {});

/// x[i][j]... for indices that are numbers or 0-d tensors: x(i, j).
Tensor part_at(const Arg& x, std::initializer_list<const Arg*> indices);

namespace internal {
/// gather or index_select for a function that looks up `what`. The error of an index out of range begins with it, in
/// compiled functions too: "cross_entropy: a target is not a class: gather: index 7 at position 2 ...". If `what` has
/// its own "; need ...", it is the whole error, an InvalidArgument: the index means nothing to the user.
Tensor look_up(const OpDef& op, const Arg& x, int64_t dim, const Arg& index, std::string what);
/// i64 positions of a dim of extent n, where negative ones counted from the end; throws, naming `op`, if the dtype is
/// not integral.
Tensor from_front(const Tensor& positions, int64_t n, const char* op);
/// Whether `what` is the whole error of a look-up.
bool is_whole_error(std::string_view what);
/// Throws, naming `op`, if x has no values yet because a compiled function computes it; `need` ends the sentence.
void require_values(const Tensor& x, const char* op, const char* need);
/// A 1-d i64 tensor of these positions.
Tensor positions_of(const std::vector<int64_t>& values, Device device);
}  // namespace internal

struct Sorted {
  Tensor values, indices;  // indices: i64
};
struct TopK {
  Tensor values, indices;  // indices: i64
};
/// Stable; NaN is greater than all numbers.
Sorted sort(const Arg& x, int64_t dim = -1, bool descending = false);
Tensor argsort(const Arg& x, int64_t dim = -1, bool descending = false);
/// The k largest (or smallest) along dim, best first; among equal values the lower index comes first.
TopK topk(const Arg& x, int64_t k, int64_t dim = -1, bool largest = true);

/// kPicks, kAddsAtIndex, index_copy: the dim of operand 0 along which the indices in operand 1 choose.
inline int64_t indexed_dim(const Node& n) { return n.attrs.i("dim", 0); }

extern const OpDef gather_op;                // (x, index) {dim, what?: see look_up}
extern const OpDef index_select_op;          // (x, index) {dim, what?}
extern const OpDef scatter_add_op;           // (x, index, src) {dim}
extern const OpDef index_add_op;             // (x, index, src): along dim 0
extern const OpDef index_copy_op;            // (x, index, src): along dim 0
extern const OpDef dynamic_update_slice_op;  // (x, update, start...)
extern const OpDef dynamic_slice_op;         // (x, start...) {sizes}
extern const OpDef sort_op;                  // (x) -> values, indices {dim, descending}
extern const OpDef topk_op;                  // (x) -> values, indices {k, dim, largest}
std::span<const OpDef* const> index_ops();

}  // namespace weft
