// TensorPart: which elements of a tensor a shard has. Copies of shards, and reads of their bytes in files, follow from
// it.
#pragma once
#include <cstdint>
#include <utility>
#include <vector>

#include "framework/tensor/shape.h"

namespace weft {

/// Ranges [begin, end) of the indices of a dim, in the order of the part: none is empty, none overlap, and the end of
/// one is not the begin of the next.
using IndexRanges = std::vector<std::pair<int64_t, int64_t>>;

/// Elements [whole, whole + count) of a row-major tensor: elements [part, part + count) of its row-major part.
struct ElementRun {
  int64_t whole = 0, part = 0, count = 0;
  friend bool operator==(const ElementRun&, const ElementRun&) = default;
};

/// The elements whose index in each dim is in one of the ranges of the dim.
struct TensorPart {
  std::vector<IndexRanges> dims;
  static TensorPart all(const Shape& whole);
  Shape shape() const;
};

/// Adds a range to the end of a list.
inline void add_range(IndexRanges& ranges, int64_t begin, int64_t end) {
  if (begin == end) return;
  if (!ranges.empty() && ranges.back().second == begin)
    ranges.back().second = end;
  else
    ranges.emplace_back(begin, end);
}

inline TensorPart TensorPart::all(const Shape& whole) {
  TensorPart part;
  for (const int64_t extent : whole) {
    part.dims.emplace_back();
    add_range(part.dims.back(), 0, extent);
  }
  return part;
}

inline Shape TensorPart::shape() const {
  Shape shape;
  for (const IndexRanges& ranges : dims) {
    int64_t n = 0;
    for (const auto& [begin, end] : ranges) n += end - begin;
    shape.push_back(n);
  }
  return shape;
}

/// Calls f(ElementRun) for all elements of a part of a tensor of this shape, in the order of the part. Consecutive
/// runs cannot be joined. A byte offset is the element offset times the element size.
template <class F>
void each_run(const TensorPart& part, const Shape& whole, F&& f) {
  const size_t n = part.dims.size();
  const Shape strides = contiguous_strides(whole);
  // Behind dim `inner`, the part has all indices, so each range of this dim is one run.
  size_t inner = n > 0 ? n - 1 : 0;
  while (inner > 0 && part.dims[inner] == IndexRanges{{0, whole[static_cast<int>(inner)]}}) --inner;
  ElementRun run;
  const auto add = [&](int64_t at, int64_t count) {
    if (run.count > 0 && run.whole + run.count == at) {
      run.count += count;
      return;
    }
    if (run.count > 0) f(std::as_const(run));
    run = {at, run.part + run.count, count};
  };
  const auto walk = [&](const auto& self, size_t d, int64_t base) -> void {
    const int64_t stride = strides[static_cast<int>(d)];
    for (const auto& [begin, end] : part.dims[d])
      if (d == inner)
        add(base + begin * stride, (end - begin) * stride);
      else
        for (int64_t i = begin; i < end; ++i) self(self, d + 1, base + i * stride);
  };
  if (n == 0)
    add(0, 1);  // a scalar
  else
    walk(walk, 0, 0);
  if (run.count > 0) f(std::as_const(run));
}

}  // namespace weft
