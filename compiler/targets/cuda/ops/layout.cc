#include "compiler/targets/cuda/ops/layout.h"

#include <cstdlib>

namespace weft::cuda {
namespace {

constexpr int64_t kMost = INT32_MAX - 4096;

int64_t reach(const Shape& shape, const Shape& strides) {
  int64_t far = 0;
  for (int d = 0; d < shape.size(); ++d)
    if (shape[d] > 0) far += (shape[d] - 1) * std::abs(strides[d]);
  return far;
}

}  // namespace

Walk::Walk(const Shape& of, std::initializer_list<Shape> views) : strides(views.size()), n(of.numel()) {
  for (int d = 0; d < of.size(); ++d) {
    if (of[d] == 1) continue;
    bool joins = !shape.empty();
    size_t k = 0;
    for (const Shape& s : views) {
      joins = joins && strides[k].back() == s[d] * of[d];
      ++k;
    }
    k = 0;
    if (joins) {
      shape.back() *= of[d];
      for (const Shape& s : views) strides[k++].back() = s[d];
    } else {
      shape.push_back(of[d]);
      for (const Shape& s : views) strides[k++].push_back(s[d]);
    }
  }
  if (shape.empty()) {
    shape.push_back(1);
    for (Shape& s : strides) s.push_back(0);
  }
}

bool Walk::wide() const {
  bool wide = n > kMost;
  for (const Shape& s : strides) wide = wide || reach(shape, s) > kMost;
  return wide;
}

void Walk::declare(Text& text, std::initializer_list<std::string_view> names) const {
  text.index("n", n);
  declare(text, "kRank", "shape", names);
}

void Walk::declare(Text& text, std::string_view count, std::string_view extents,
                   std::initializer_list<std::string_view> names) const {
  text.constant(count, rank()).indices(str_cat(extents, "[", count, "]"), {shape.begin(), shape.end()});
  size_t k = 0;
  for (std::string_view name : names) {
    text.indices(str_cat(name, "[", count, "]"), {strides[k].begin(), strides[k].end()});
    ++k;
  }
}

Reduced::Reduced(const StridedView& x, const Shape& dims) {
  for (int d = 0, k = 0; d < x.shape.size(); ++d) {
    const bool taken = k < dims.size() && dims[k] == d;
    (taken ? reduced : kept).push_back(x.shape[d]);
    (taken ? reduced_strides : kept_strides).push_back(x.strides[d]);
    k += taken;
  }
}

Shape without(Shape s, int dim) {
  s.erase(dim);
  return s;
}

int64_t elements_behind(const StridedView& v, int dim) {
  int64_t n = 1;
  for (int d = dim + 1; d < v.shape.size(); ++d) n *= v.shape[d];
  return n;
}

bool is_wide(const StridedView& v) { return v.numel() > kMost || reach(v.shape, v.strides) > kMost; }

Shape broadcast_strides(const StridedView& v) {
  Shape s = v.strides;
  for (int d = 0; d < s.size(); ++d)
    if (v.shape[d] == 1) s[d] = 0;
  return s;
}

const std::string_view kOffsetFunctions = R"(
template <int kDims>
static inline I offset_of(I i, const I* shape, const I* stride) {
  I at = 0;
#pragma unroll
  for (int d = kDims - 1; d > 0; --d) {
    at += i % shape[d] * stride[d];
    i /= shape[d];
  }
  return at + i * stride[0];
}
)";

const std::string_view kCheckFunctions = R"(
static inline int64 checked(int64 v, int64 limit, int64 position, int* bad, int64 detail = 0) {
  if (v >= 0 && v < limit) return v;
  tell_bad_index(bad, v, position, limit, detail);
  return 0;
}
// The row-major position of element i of a line. Lines are numbered by the dims around theirs; `inner` elements follow
// the line's dim.
static inline int64 position_of(int64 line, int64 i, int64 length, int64 inner) {
  return (line / inner * length + i) * inner + line % inner;
}
)";

const std::string_view kWriteFunctions = R"(
template <class V> static inline void write(f32& y, V v) { put(y, to_f32(v)); }
template <class V> static inline void write(bf16& y, V v) { put(y, to_f32(v)); }
template <class V> static inline void write(f16& y, V v) { put(y, to_f32(v)); }
template <class V> static inline void write(f64& y, V v) { put(y, to_f64(v)); }
template <class V> static inline void write(i64& y, V v) { put(y, to_i64(v)); }
template <class V> static inline void write(i32& y, V v) { put(y, to_i32(v)); }
template <class V> static inline void write(i16& y, V v) { y = (i16)to_i64(v); }
template <class V> static inline void write(i8& y, V v) { y = (i8)to_i64(v); }
template <class V> static inline void write(u8& y, V v) { y = (u8)to_i64(v); }
template <class V> static inline void write(bool8& y, V v) { y.bits = v != 0; }
)";

}  // namespace weft::cuda
