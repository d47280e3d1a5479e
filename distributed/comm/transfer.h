// The data movement of collectives: strided copies and ordered reductions, split into boxes. An element of a result
// depends on its operands only, never on the split into boxes.
#pragma once
#include <optional>
#include <vector>

#include "framework/dispatch/rank/communicator.h"

namespace weft::dist::internal {

/// Copies `from` to every view of `to`; all have one shape. Several sources are combined by `op` from the first to the
/// last: 16-bit floats in f32, rounded once.
struct Transfer {
  std::vector<StridedView> from, to;
  ReduceOp op = ReduceOp::kSum;
  std::optional<bool> around_caches;  // whether results bypass the caches; by default, only large results do
  const Shape& shape() const { return from[0].shape; }
};

/// A part of a transfer: `extent` elements from `begin` on, per dim.
struct Box {
  int32_t transfer = 0;
  Shape begin, extent;
};

/// The part [begin, begin + extent) of a view along `dim`.
StridedView slice(StridedView view, int dim, int64_t begin, int64_t extent);
/// Appends the boxes of a transfer, each of about `bytes` or less. If all views of the transfer are contiguous, it
/// becomes 1-d.
void cut(Transfer& t, int32_t index, int64_t bytes, std::vector<Box>& boxes);
/// Appends boxes of at most `elements` each, which depend on the shape only.
void split(const Shape& shape, int32_t index, int64_t elements, std::vector<Box>& boxes);
/// Copies one box. A destination may be the same memory as a source.
void run(const Transfer& t, const Box& box);
/// Whether `op` is defined for this dtype: all for floats, all but avg for integers, max and min for bools.
bool reduces(ReduceOp op, DType dtype);

}  // namespace weft::dist::internal
