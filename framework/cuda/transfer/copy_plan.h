// The plan of a copy between two strided views of the same shape: the fewest rows of the longest runs of bytes.
#pragma once
#include <functional>

#include "framework/base/small_vec.h"
#include "framework/tensor/view.h"

namespace weft::cuda {

/// One loop of a copy; strides in bytes.
struct CopyLoop {
  int64_t extent = 1, from = 0, to = 0;
};

/// A copy as nested loops around runs of bytes that are contiguous on both sides. Loops are outermost first; no loop
/// has extent 1, and none could be merged with the next.
struct NestedCopy {
  int64_t run = 0;  // bytes; 0 if there is nothing to copy
  SmallVec<CopyLoop, 4> loops;
};

/// The plan for `shape` elements of `size` bytes; strides in elements, 0 where broadcast.
NestedCopy plan_copy(const Shape& shape, const Shape& from_strides, const Shape& to_strides, int64_t size);

/// Calls copy(from byte offset, to byte offset) in plan order for each run, or, with inner_loops 1, for each row of
/// runs: the innermost `inner_loops` loops are left to `copy`.
void for_each_run(const NestedCopy& plan, int inner_loops, const std::function<void(int64_t, int64_t)>& copy);

/// Runs the plan on the host.
void copy_on_host(const NestedCopy& plan, const void* from, void* to);

/// The first byte and one past the last byte of a view's elements, relative to its data.
struct ByteSpan {
  int64_t begin = 0, end = 0;
};
ByteSpan span_of(const StridedView& view);

}  // namespace weft::cuda
