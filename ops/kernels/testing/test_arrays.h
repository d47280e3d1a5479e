// Arrays for the kernel tests: any dtype and strides, read and written as doubles by plain scalar code.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <random>
#include <vector>

#include "framework/tensor/view.h"

namespace weft::kernels {

inline double get_element(const void* p, DType t) {
  switch (t) {
    case kFloat32:
      return *static_cast<const float*>(p);
    case kFloat64:
      return *static_cast<const double*>(p);
    case kBFloat16:
      return static_cast<float>(*static_cast<const bfloat16*>(p));
    case kFloat16:
      return static_cast<float>(*static_cast<const float16*>(p));
    case kInt64:
      return static_cast<double>(*static_cast<const int64_t*>(p));
    case kInt32:
      return *static_cast<const int32_t*>(p);
    case kInt16:
      return *static_cast<const int16_t*>(p);
    case kInt8:
      return *static_cast<const int8_t*>(p);
    case kUInt8:
      return *static_cast<const uint8_t*>(p);
    case kBool:
      return *static_cast<const bool*>(p);
    default:
      return float8_to_float(*static_cast<const uint8_t*>(p), t);
  }
}
inline void set_element(void* p, DType t, double v) {
  switch (t) {
    case kFloat32:
      *static_cast<float*>(p) = static_cast<float>(v);
      break;
    case kFloat64:
      *static_cast<double*>(p) = v;
      break;
    case kBFloat16:
      *static_cast<bfloat16*>(p) = static_cast<float>(v);
      break;
    case kFloat16:
      *static_cast<float16*>(p) = static_cast<float>(v);
      break;
    case kInt64:
      *static_cast<int64_t*>(p) = static_cast<int64_t>(v);
      break;
    case kInt32:
      *static_cast<int32_t*>(p) = static_cast<int32_t>(v);
      break;
    case kInt16:
      *static_cast<int16_t*>(p) = static_cast<int16_t>(static_cast<int64_t>(v));
      break;
    case kInt8:
      *static_cast<int8_t*>(p) = static_cast<int8_t>(static_cast<int64_t>(v));
      break;
    case kUInt8:
      *static_cast<uint8_t*>(p) = static_cast<uint8_t>(static_cast<int64_t>(v));
      break;
    case kBool:
      *static_cast<bool*>(p) = v != 0;
      break;
    default:
      *static_cast<uint8_t*>(p) = float8_from_float(static_cast<float>(v), t);
  }
}

/// Owns the memory of a view; elements are addressed by row-major position.
class Array {
 public:
  /// Row-major.
  Array(DType dtype, const Shape& shape) : Array(dtype, shape, contiguous_strides(shape)) {}
  /// Any strides from 0 up.
  Array(DType dtype, const Shape& shape, const Shape& strides) {
    int64_t last = 0;
    for (int d = 0; d < shape.size(); ++d) last += (shape[d] ? shape[d] - 1 : 0) * strides[d];
    memory_.assign((last + 1) * itemsize(dtype) + 64, char(0x5a));
    char* p = memory_.data();
    p += (64 - reinterpret_cast<uintptr_t>(p) % 64) % 64;
    view_ = {p, dtype, shape, strides};
  }
  Array(const Array&) = delete;
  Array(Array&& o) noexcept : memory_(std::move(o.memory_)), view_(o.view_) {}

  const StridedView& view() const { return view_; }
  operator const StridedView&() const { return view_; }
  int64_t size() const { return view_.numel(); }
  void* address(int64_t i) const {
    int64_t offset = 0;
    for (int d = view_.shape.size() - 1; d >= 0; --d) {
      offset += i % view_.shape[d] * view_.strides[d];
      i /= view_.shape[d];
    }
    return static_cast<char*>(view_.data) + offset * itemsize(view_.dtype);
  }
  double operator[](int64_t i) const { return get_element(address(i), view_.dtype); }
  void set(int64_t i, double v) { set_element(address(i), view_.dtype, v); }
  Array& fill_uniform(uint64_t seed, double lo, double hi) {
    std::mt19937_64 random(seed);
    std::uniform_real_distribution<double> u(lo, hi);
    for (int64_t i = 0; i < size(); ++i) set(i, u(random));
    return *this;
  }
  Array& fill_with(const std::function<double(int64_t)>& f) {
    for (int64_t i = 0; i < size(); ++i) set(i, f(i));
    return *this;
  }
  /// Bytes of the elements in row-major order.
  std::vector<char> bits() const {
    const int64_t s = itemsize(view_.dtype);
    std::vector<char> b(size() * s);
    for (int64_t i = 0; i < size(); ++i) std::memcpy(b.data() + i * s, address(i), s);
    return b;
  }
  /// The same elements with other strides.
  Array with_strides(const Shape& strides) const {
    Array a(view_.dtype, view_.shape, strides);
    for (int64_t i = 0; i < size(); ++i) std::memcpy(a.address(i), address(i), itemsize(view_.dtype));
    return a;
  }

 private:
  std::vector<char> memory_;
  StridedView view_;
};

/// Workspace of a kernel: 64-byte aligned.
class Workspace {
 public:
  explicit Workspace(int64_t bytes) : memory_(bytes + 64) {}
  void* get() { return memory_.data() + (64 - reinterpret_cast<uintptr_t>(memory_.data()) % 64) % 64; }

 private:
  std::vector<char> memory_;
};

/// Distance between neighbouring values of a float dtype around v.
inline double ulp(double v, DType t) {
  const int mantissa = t == kFloat32 ? 23 : t == kFloat64 ? 52 : t == kBFloat16 ? 7 : 10;
  const int least = t == kFloat16 ? -14 : t == kFloat64 ? -1022 : -126;
  int e = v == 0 ? least : std::max(std::ilogb(v), least);
  return std::ldexp(1.0, e - mantissa);
}

}  // namespace weft::kernels
