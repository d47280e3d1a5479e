// Shape: up to kMaxDims 64-bit extents held inline. Also used for strides (in elements) and lists of dims.
#pragma once
#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <span>
#include <string>
#include <vector>

#include "framework/base/error.h"
#include "framework/base/saturate.h"

namespace weft {

inline constexpr int kMaxDims = 8;

class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<int64_t> v) : Shape(std::span<const int64_t>(v.begin(), v.size())) {}
  /// One extent: zeros(3) is zeros({3}).
  template <std::integral I>
  requires(!std::is_same_v<I, bool>) Shape(I extent) : n_(1) { d_[0] = static_cast<int64_t>(extent); }
  Shape(const std::vector<int64_t>& v) : Shape(std::span<const int64_t>(v)) {}
  explicit Shape(std::span<const int64_t> v) {
    WEFT_CHECK(v.size() <= kMaxDims, "shape: got ", v.size(), " dimensions; need at most ", kMaxDims);
    for (int64_t x : v) d_[n_++] = x;
  }
  Shape(const Shape& o) : n_(o.n_) {
    for (int i = 0; i < n_; ++i) d_[i] = o.d_[i];
  }
  Shape& operator=(const Shape& o) {
    n_ = o.n_;
    for (int i = 0; i < n_; ++i) d_[i] = o.d_[i];
    return *this;
  }
  static Shape filled(int n, int64_t v) {
    Shape s;
    for (int i = 0; i < n; ++i) s.push_back(v);
    return s;
  }

  int size() const { return n_; }
  bool empty() const { return n_ == 0; }
  int64_t operator[](int i) const { return d_[i]; }
  int64_t& operator[](int i) { return d_[i]; }
  int64_t back() const { return d_[n_ - 1]; }
  int64_t& back() { return d_[n_ - 1]; }
  const int64_t* data() const { return d_; }
  int64_t* data() { return d_; }
  const int64_t* begin() const { return d_; }
  const int64_t* end() const { return d_ + n_; }
  int64_t* begin() { return d_; }
  int64_t* end() { return d_ + n_; }
  void push_back(int64_t v) {
    WEFT_CHECK(n_ < kMaxDims, "shape: got more than ", kMaxDims, " dimensions; need at most ", kMaxDims);
    d_[n_++] = v;
  }
  void pop_back() { --n_; }
  void insert(int i, int64_t v) {
    push_back(v);
    for (int j = n_ - 1; j > i; --j) d_[j] = d_[j - 1];
    d_[i] = v;
  }
  void erase(int i) {
    for (int j = i; j + 1 < n_; ++j) d_[j] = d_[j + 1];
    --n_;
  }
  operator std::span<const int64_t>() const { return {d_, static_cast<size_t>(n_)}; }
  std::vector<int64_t> vec() const { return {begin(), end()}; }

  /// Product of the extents; 1 for a scalar. Saturates.
  int64_t numel() const {
    int64_t p = 1;
    for (int i = 0; i < n_; ++i) p = saturating_mul(p, d_[i]);
    return p;
  }
  friend bool operator==(const Shape& a, const Shape& b) {
    if (a.n_ != b.n_) return false;
    for (int i = 0; i < a.n_; ++i)
      if (a.d_[i] != b.d_[i]) return false;
    return true;
  }
  /// "[2, 3]".
  std::string to_string() const;

 private:
  int64_t d_[kMaxDims];
  int n_ = 0;
};

/// Dims to reduce: one number, a list, or nothing for all dims. Negative numbers count from the end.
using Dims = Shape;

/// "[2, 3]".
std::ostream& operator<<(std::ostream& out, const Shape& shape);

/// Row-major strides in elements.
Shape contiguous_strides(const Shape& shape);
/// True if the elements are stored in row-major order without gaps (strides of dims of extent 1 and of empty tensors do
/// not matter).
bool is_contiguous(const Shape& shape, const Shape& strides);

/// NumPy broadcasting of two shapes; throws "op: shapes [2, 3] and [4] do not broadcast ..." naming `op`.
Shape broadcast_shapes(const Shape& a, const Shape& b, const char* op);

/// Resolves a possibly negative dim against `rank`; throws OutOfRange naming `op`.
int normalize_dim(int64_t dim, int rank, const char* op);

/// numel(); throws, naming `op`, on negative extents and on more elements than 64-bit byte counts allow. Extents of 0
/// count as 1 there, so that strides and offsets of every shape that passes fit 64 bits.
int64_t checked_numel(const Shape& shape, const char* op);

/// Computes strides that view the same memory as shape `to`; false if this needs a copy (PyTorch's view rule).
bool view_strides(const Shape& from, const Shape& strides, const Shape& to, Shape* out);

}  // namespace weft
