#include "framework/testing/values.h"

#include <cmath>
#include <cstring>

namespace weft::testing {

uint64_t Random::bits() {
  uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

double Random::between(double lo, double hi, bool integer) {
  return integer ? std::floor(lo + uniform() * (hi - lo + 1)) : lo + uniform() * (hi - lo);
}

Tensor random_tensor(DType dtype, const Shape& shape, Random& random, double lo, double hi) {
  if (dtype == kBool) {
    lo = 0;
    hi = 1;
  }
  if (dtype == kUInt8) lo = std::max(lo, 0.0);
  std::vector<Real> v(shape.numel());
  for (Real& x : v) x = random.between(lo, hi, !is_floating(dtype));
  return from_reals(v, {dtype, Device::cpu(), shape});
}

const char* name_of(Layout layout) {
  switch (layout) {
    case Layout::kContiguous:
      return "contiguous";
    case Layout::kTransposed:
      return "transposed";
    case Layout::kStepped:
      return "stepped";
    case Layout::kBroadcast:
      return "broadcast";
  }
  return "";
}

Tensor with_layout(const Tensor& t, Layout layout) {
  if (layout == Layout::kContiguous) return t;
  const Shape& shape = t.shape();
  const int rank = shape.size();
  Shape strides = Shape::filled(rank, 0);
  int64_t span = 1, offset = 0;
  if (layout == Layout::kTransposed) {
    for (int d = 0; d < rank; ++d) {
      strides[d] = span;
      span *= std::max<int64_t>(shape[d], 1);
    }
  } else if (layout == Layout::kStepped) {
    offset = 3;
    for (int d = rank - 1; d >= 0; --d) {
      span *= 2;
      strides[d] = span;
      span = span * shape[d] + 1;
    }
    span += offset + 1;
  } else {
    strides = contiguous_strides(shape);
    span = std::max<int64_t>(shape.numel(), 1);
    for (int d = 0; d < rank; ++d) {
      if (shape[d] <= 1) continue;
      strides[d] = 0;
      break;
    }
  }
  const int64_t size = itemsize(t.dtype());
  Ref<Storage> storage = Storage::allocate(span * size, t.device());
  std::memset(storage->data(), t.dtype() == kBool ? 0x01 : 0xff, span * size);  // all ones: NaN, -1
  auto* impl = new TensorImpl;
  impl->type = t.type();
  impl->strides = strides;
  impl->storage = storage;
  impl->offset = offset * size;
  Tensor result(impl);
  Tensor from = t.view_for_kernel().contiguous() ? t : from_reals(to_reals(t), t.type());
  const char* in = static_cast<const char*>(from.view_for_kernel().data);
  char* out = static_cast<char*>(storage->data()) + impl->offset;
  // Elements are written in reverse order, so that the first of repeated elements stays.
  for (int64_t i = t.numel() - 1; i >= 0; --i) {
    int64_t at = 0, rest = i;
    for (int d = rank - 1; d >= 0; --d) {
      at += rest % shape[d] * strides[d];
      rest /= shape[d];
    }
    std::memcpy(out + at * size, in + i * size, size);
  }
  return result;
}

}  // namespace weft::testing
