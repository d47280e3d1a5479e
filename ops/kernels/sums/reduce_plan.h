// The plan of a reduction: which outputs are computed together, how the reduced elements are numbered, and the work of
// a task. Plans depend only on types, strides and dims.
#pragma once
#include <cstdint>

#include "ops/kernels/kernels.h"

namespace weft::kernels {

struct ReduceSplit {
  struct ReducedDim {
    int64_t extent, stride;  // bytes
  };
  struct OuterDim {
    int64_t extent, in, out;  // bytes of in, elements of out
  };
  struct Chunk {
    int64_t in, out, count;
  };

  /// out_strides may be null: then only sizes are planned.
  ReduceSplit(Rd op, DType in, const Shape& shape, const Shape& strides, uint32_t mask, const Shape* out_strides);

  DType in, element, acc;  // stored, read by kernels, accumulated
  int64_t size, acc_size;  // bytes of in and acc
  bool converts = false;   // element differs from in
  int64_t n = 1, outputs = 1, blocks = 0;
  int reduced_dims = 0, outer_dims = 0;
  ReducedDim reduced[kMaxDims];
  OuterDim outer[kMaxDims];
  bool by_columns = false;  // the line's outputs are closer in memory than the elements of one output
  bool direct = false;      // the kernels read memory without packing
  int64_t column_stride = 0, out_stride = 0, line_extent = 1;  // the line: the kept dim that chunks run along
  int64_t chunk_size = 1, line_chunks = 1, chunks = 1;
  bool split = false;  // few outputs, many elements: blocks are tasks, too

  int64_t chunks_per_task() const;

  Chunk chunk(int64_t index) const {
    Chunk c{0, 0, 0};
    const int64_t first = index % line_chunks * chunk_size;
    index /= line_chunks;
    c.count = first + chunk_size < line_extent ? chunk_size : line_extent - first;
    c.in = first * column_stride;
    c.out = first * out_stride;
    for (int k = outer_dims - 1; k >= 0; --k) {
      c.in += index % outer[k].extent * outer[k].in;
      c.out += index % outer[k].extent * outer[k].out;
      index /= outer[k].extent;
    }
    return c;
  }

  /// Calls f(offset, stride, count), in bytes and elements, for the pieces of equal stride that make up the reduced
  /// elements first .. first + count, in order.
  template <class F>
  void for_runs(int64_t first, int64_t count, F f) const {
    if (!reduced_dims) {
      if (count) f(0, 0, count);
      return;
    }
    const ReducedDim& last = reduced[reduced_dims - 1];
    while (count > 0) {
      int64_t rest = first / last.extent, at = first % last.extent, offset = at * last.stride;
      for (int d = reduced_dims - 2; d >= 0; --d) {
        offset += rest % reduced[d].extent * reduced[d].stride;
        rest /= reduced[d].extent;
      }
      const int64_t run = count < last.extent - at ? count : last.extent - at;
      f(offset, last.stride, run);
      first += run;
      count -= run;
    }
  }
};

}  // namespace weft::kernels
