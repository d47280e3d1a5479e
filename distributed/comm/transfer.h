// What moves in a collective: strided copies and ordered reductions of boxes. An element of a result depends on its
// operands only, never on how the work was cut.
#pragma once
#include <vector>

#include "framework/dispatch/communicator.h"

namespace weft::dist::internal {

/// One shape, read from `from` and written to every view of `to`. Several sources are combined by `op` from the first
/// to the last: 16-bit floats in f32, rounded once.
struct Transfer {
  std::vector<StridedView> from, to;
  ReduceOp op = ReduceOp::kSum;
  const Shape& shape() const { return from[0].shape; }
};

/// A part of a transfer: `extent` elements from `begin` on, per dim.
struct Box {
  int32_t transfer = 0;
  Shape begin, extent;
};

/// The part [begin, begin + extent) of a view along `dim`.
StridedView slice(StridedView view, int dim, int64_t begin, int64_t extent);
/// Appends the boxes of a transfer: each about `bytes` big or smaller. Where all views are contiguous it is flattened.
void cut(Transfer& t, int32_t index, int64_t bytes, std::vector<Box>& boxes);
/// Does one box. A destination may be exactly a source.
void run(const Transfer& t, const Box& box);
/// Whether `op` combines elements of this dtype: numbers all, averages floats only, bools their max and min.
bool reduces(ReduceOp op, DType dtype);

}  // namespace weft::dist::internal
