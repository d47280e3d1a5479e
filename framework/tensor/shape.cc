#include "framework/tensor/shape.h"

#include <algorithm>
#include <ostream>

namespace weft {

// 2^61 bytes of 8-byte elements: sums of a few byte counts fit 64 bits.
static constexpr int64_t kMaxElements = int64_t{1} << 58;

std::string Shape::to_string() const { return str_cat(std::span<const int64_t>(*this)); }
std::ostream& operator<<(std::ostream& out, const Shape& shape) { return out << shape.to_string(); }

Shape contiguous_strides(const Shape& shape) {
  Shape s = shape;
  int64_t step = 1;
  for (int i = shape.size() - 1; i >= 0; --i) {
    s[i] = step;
    step = saturating_mul(step, std::max<int64_t>(shape[i], 1));
  }
  return s;
}

bool is_contiguous(const Shape& shape, const Shape& strides) {
  int64_t step = 1;
  for (int i = shape.size() - 1; i >= 0; --i) {
    if (shape[i] != 1) {
      if (strides[i] != step) return shape.numel() == 0;
      step *= shape[i];
    }
  }
  return true;
}

Shape broadcast_shapes(const Shape& a, const Shape& b, const char* op) {
  if (a == b) return a;
  const Shape& longer = a.size() >= b.size() ? a : b;
  const Shape& shorter = a.size() >= b.size() ? b : a;
  Shape r = longer;
  int shift = longer.size() - shorter.size();
  for (int i = 0; i < shorter.size(); ++i) {
    int64_t x = longer[shift + i], y = shorter[i];
    WEFT_CHECK(x == y || x == 1 || y == 1, op, ": shapes ", a, " and ", b, " do not broadcast: dimension ", shift + i,
               " has ", a.size() >= b.size() ? x : y, " and ", a.size() >= b.size() ? y : x,
               "; need equal extents or 1");
    r[shift + i] = x == 1 ? y : x;
  }
  return r;
}

int normalize_dim(int64_t dim, int rank, const char* op) {
  int64_t n = rank > 0 ? rank : 1;
  WEFT_CHECK_AS(kOutOfRange, dim >= -n && dim < n, op, ": dim ", dim, " is out of range for a tensor of ", rank,
                rank == 1 ? " dimension" : " dimensions", "; need ", -n, " to ", n - 1);
  return static_cast<int>(dim < 0 ? dim + n : dim);
}

int64_t checked_numel(const Shape& shape, const char* op) {
  int64_t n = 1;
  for (int64_t d : shape) {
    WEFT_CHECK(d >= 0, op, ": negative extent in shape ", shape, "; need 0 or more");
    n = saturating_mul(n, std::max<int64_t>(d, 1));
  }
  WEFT_CHECK(n < kMaxElements, op, ": shape ", shape, " has too many elements; need fewer than 2^58");
  return shape.numel();
}

bool view_strides(const Shape& from, const Shape& strides, const Shape& to, Shape* out) {
  *out = contiguous_strides(to);
  if (from.numel() == 0 || is_contiguous(from, strides)) return true;
  // Walk both shapes from the inside, matching chunks of old dims that are one contiguous run.
  int v = to.size() - 1;
  int64_t base = strides.empty() ? 1 : strides.back(), chunk = 1, covered = 1;
  for (int d = from.size() - 1; d >= 0; --d) {
    chunk *= from[d];
    bool last = d == 0 || (from[d - 1] != 1 && strides[d - 1] != chunk * base);
    if (!last) continue;
    while (v >= 0 && (covered < chunk || to[v] == 1)) {
      (*out)[v] = covered * base;
      covered *= to[v];
      --v;
    }
    if (covered != chunk) return false;
    if (d > 0) {
      base = strides[d - 1];
      chunk = 1;
      covered = 1;
    }
  }
  return v == -1;
}

}  // namespace weft
