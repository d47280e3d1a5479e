#include "compiler/cuda/ops/layout.h"

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
  text.constant("kRank", rank()).index("n", n).indices("shape[kRank]", {shape.begin(), shape.end()});
  size_t k = 0;
  for (std::string_view name : names) {
    text.indices(cat(name, "[kRank]"), {strides[k].begin(), strides[k].end()});
    ++k;
  }
}

bool is_wide(const StridedView& v) { return v.numel() > kMost || reach(v.shape, v.strides) > kMost; }

Shape broadcast_strides(const StridedView& v) {
  Shape s = v.strides;
  for (int d = 0; d < s.size(); ++d)
    if (v.shape[d] == 1) s[d] = 0;
  return s;
}

const std::string_view kOffsetWords = R"(
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

const std::string_view kCheckWords = R"(
static inline int64 checked(int64 v, int64 limit, int* bad) {
  if (v >= 0 && v < limit) return v;
  *bad = 1;
  return 0;
}
)";

const std::string_view kWriteWords = R"(
template <class V> static inline void write(f32& y, V v) { put(y, to_f32(v)); }
template <class V> static inline void write(bf16& y, V v) { put(y, to_f32(v)); }
template <class V> static inline void write(f16& y, V v) { put(y, to_f32(v)); }
template <class V> static inline void write(f64& y, V v) { put(y, to_f64(v)); }
template <class V> static inline void write(i64& y, V v) { put(y, to_i64(v)); }
template <class V> static inline void write(i32& y, V v) { put(y, to_i32(v)); }
template <class V> static inline void write(u8& y, V v) { y = (u8)to_i64(v); }
template <class V> static inline void write(bool8& y, V v) { y.bits = v != 0; }
)";

}  // namespace weft::cuda
