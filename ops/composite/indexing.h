// Several indices at once, as Python's x[1:3, 0, ..., None, mask]: index(x, {Slice(1, 3), 0, Ellipsis, None, mask}).
#pragma once
#include <concepts>
#include <optional>
#include <vector>

#include "framework/dispatch/arg.h"

namespace weft {
namespace indexing {

struct EllipsisType {};
struct NoneType {};
/// All dims that the other indices leave.
inline constexpr EllipsisType Ellipsis;
/// A new dim of extent 1; a bound of a Slice that is not given.
inline constexpr NoneType None;

/// Elements start, start + step, ... below stop, as Python's start:stop:step; step >= 1.
struct Slice {
  struct SliceBound {
    std::optional<int64_t> at;
    SliceBound(NoneType = None) {}
    template <std::integral I>
    SliceBound(I position) : at(static_cast<int64_t>(position)) {}
  };
  Slice(SliceBound start = {}, SliceBound stop = {}, SliceBound step = {}) : start(start), stop(stop), step(step) {}
  SliceBound start, stop, step;
};

/// One index: a position, a Slice, Ellipsis, None, or a tensor of integers or bool.
class TensorIndex {
 public:
  enum IndexKind : uint8_t { kPosition, kSlice, kEllipsis, kNone, kTensor };
  template <std::integral I>
  requires(!std::is_same_v<I, bool>) TensorIndex(I position)
      : kind_(kPosition), position_(static_cast<int64_t>(position)) {}
  TensorIndex(const Slice& slice) : kind_(kSlice), slice_(slice) {}
  TensorIndex(EllipsisType) : kind_(kEllipsis) {}
  TensorIndex(NoneType) : kind_(kNone) {}
  TensorIndex(const Tensor& tensor) : kind_(kTensor), tensor_(tensor) {}

  IndexKind kind() const { return kind_; }
  int64_t position() const { return position_; }
  const Slice& slice() const { return slice_; }
  const Tensor& tensor() const { return tensor_; }

 private:
  IndexKind kind_;
  int64_t position_ = 0;
  Slice slice_;
  Tensor tensor_;
};

}  // namespace indexing

using indexing::Ellipsis;
using indexing::None;
using indexing::Slice;
using indexing::TensorIndex;

/// x at these indices, for its dims from the first. Positions and tensors of positions count from the end if negative.
/// Tensors are broadcast together and give one result per element, as in NumPy: their dims replace the indexed dims, or
/// come first if the indexed dims are not neighbours. A mask is a tensor of bool with the extents that it indexes; it
/// must have values (see nonzero).
Tensor index(const Arg& x, const std::vector<TensorIndex>& at);

/// x with the elements at these indices replaced by `values`, which broadcast to index(x, at), or with values added to
/// them. If an element occurs twice, the last value stays (accumulate: all are added). If the index is one mask and the
/// value a number, the mask may be computed in a compiled function.
Tensor index_put(const Arg& x, const std::vector<TensorIndex>& at, const Arg& values, bool accumulate = false);

namespace internal {
/// The same positions; one outside [0, n) throws OutOfRange, in compiled functions when they run.
Tensor in_range(const Tensor& positions, int64_t n, const char* op);
/// The operand, or a number as a 0-d tensor; throws, naming `op`, unless its dtype is x's or it is a number that x's
/// dtype has.
Tensor source_for(const Tensor& x, const Arg& source, const char* op);
}  // namespace internal

}  // namespace weft
