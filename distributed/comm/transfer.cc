#include "distributed/comm/transfer.h"

#include <algorithm>
#include <array>
#include <cstring>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace weft::dist::internal {
namespace {

constexpr int64_t kChunk = 2048;              // elements combined at a time: they stay in the L1 cache
constexpr int64_t kLarge = int64_t{8} << 20;  // bytes of a result that has left the caches before it is read

char* at(const StridedView& v, const Shape& index) {
  int64_t offset = 0;
  for (int d = 0; d < index.size(); ++d) offset += index[d] * v.strides[d];
  return static_cast<char*>(v.data) + offset * itemsize(v.dtype);
}

// The trailing dims that form one run of elements in every view: the first such dim, and the run's length.
struct Run {
  int dim;
  int64_t length;
  bool dense;  // unit stride in all views
};
Run run_of(const Transfer& t, const Shape& extent) {
  auto all = [&](int d, int64_t stride) {
    if (extent[d] == 1) return true;
    for (const auto* list : {&t.from, &t.to})
      for (const StridedView& v : *list)
        if (v.strides[d] != stride) return false;
    return true;
  };
  Run r{extent.size(), 1, true};
  while (r.dim > 0 && all(r.dim - 1, r.length)) r.length *= extent[--r.dim];
  if (r.length == 1 && r.dim > 0) r = {r.dim - 1, extent[r.dim - 1], false};
  return r;
}

template <class T, class Acc>
void load(const char* p, int64_t stride, int64_t n, Acc* acc) {
  const T* x = reinterpret_cast<const T*>(p);
  if (stride == 1) {
    for (int64_t i = 0; i < n; ++i) acc[i] = static_cast<Acc>(x[i]);
  } else {
    for (int64_t i = 0; i < n; ++i) acc[i] = static_cast<Acc>(x[i * stride]);
  }
}

template <class Acc>
void combine(ReduceOp op, Acc* a, const Acc* b, int64_t n) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAvg:
      for (int64_t i = 0; i < n; ++i) {
        if constexpr (std::is_same_v<Acc, int64_t>) {
          a[i] = static_cast<int64_t>(static_cast<uint64_t>(a[i]) + static_cast<uint64_t>(b[i]));
        } else {
          a[i] += b[i];
        }
      }
      break;
    case ReduceOp::kMax:  // NaN wins
      for (int64_t i = 0; i < n; ++i) a[i] = a[i] < b[i] || b[i] != b[i] ? b[i] : a[i];
      break;
    case ReduceOp::kMin:
      for (int64_t i = 0; i < n; ++i) a[i] = b[i] < a[i] || b[i] != b[i] ? b[i] : a[i];
      break;
  }
}

template <class T, class Acc>
void store(char* p, int64_t stride, int64_t n, const Acc* acc) {
  T* x = reinterpret_cast<T*>(p);
  auto convert = [](Acc v) {
    if constexpr (std::is_same_v<T, bfloat16> || std::is_same_v<T, float16>) {
      return T(v);
    } else {
      return static_cast<T>(v);
    }
  };
  for (int64_t i = 0; i < n; ++i) x[i * stride] = convert(acc[i]);
}

// Whether to write the result around the caches: a result larger than the caches leaves them before it is read.
bool streams(const Transfer& t) {
  return t.around_caches.value_or(t.shape().numel() * itemsize(t.from[0].dtype) >= kLarge);
}
void stream(char* p, int64_t bytes, const char* from) {
#ifdef __SSE2__
  const int64_t head = std::min<int64_t>(bytes, -reinterpret_cast<intptr_t>(p) & 15);
  std::memcpy(p, from, static_cast<size_t>(head));
  for (p += head, from += head, bytes -= head; bytes >= 16; p += 16, from += 16, bytes -= 16)
    _mm_stream_si128(reinterpret_cast<__m128i*>(p), _mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
#endif
  std::memcpy(p, from, static_cast<size_t>(bytes));
}

// Combines n elements; each view has its own stride between them.
template <class T, class Acc>
void reduce_run(const Transfer& t, char* const* from, char* const* to, int64_t n, bool dense, int dim) {
  Acc acc[kChunk], next[kChunk];
  auto stride = [&](const StridedView& v) { return dense ? 1 : v.strides[dim]; };
  const bool large = streams(t);
  for (int64_t begin = 0; begin < n; begin += kChunk) {
    const int64_t count = std::min(kChunk, n - begin);
    for (size_t k = 0; k < t.from.size(); ++k) {
      const int64_t s = stride(t.from[k]);
      const char* p = from[k] + begin * s * static_cast<int64_t>(sizeof(T));
      const bool as_is = std::is_same_v<T, Acc> && s == 1;  // its elements need no conversion
      if (k == 0 || !as_is) load<T>(p, s, count, k ? next : acc);
      if (k) combine(t.op, acc, as_is ? reinterpret_cast<const Acc*>(p) : next, count);
    }
    if constexpr (std::is_floating_point_v<Acc>)
      if (t.op == ReduceOp::kAvg) {
        const Acc parts = static_cast<Acc>(t.from.size());
        for (int64_t i = 0; i < count; ++i) acc[i] /= parts;
      }
    for (size_t k = 0; k < t.to.size(); ++k) {
      const int64_t s = stride(t.to[k]);
      char* p = to[k] + begin * s * static_cast<int64_t>(sizeof(T));
      if constexpr (std::is_same_v<T, Acc>) {
        if (large && s == 1 && std::find(from, from + t.from.size(), to[k]) == from + t.from.size()) {
          stream(p, count * static_cast<int64_t>(sizeof(T)), reinterpret_cast<const char*>(acc));
          continue;
        }
      }
      store<T>(p, s, count, acc);
    }
  }
}

void copy_run(char* from, int64_t from_stride, char* to, int64_t to_stride, int64_t n, bool dense, int64_t size,
              bool large) {
  if (dense) {
    if (from == to) return;
    if (large) return stream(to, n * size, from);
    std::memmove(to, from, static_cast<size_t>(n * size));
    return;
  }
  auto each = [&](auto zero) {
    using T = decltype(zero);
    const T* x = reinterpret_cast<const T*>(from);
    T* y = reinterpret_cast<T*>(to);
    for (int64_t i = 0; i < n; ++i) y[i * to_stride] = x[i * from_stride];
  };
  if (size == 1) each(uint8_t{});
  if (size == 2) each(uint16_t{});
  if (size == 4) each(uint32_t{});
  if (size == 8) each(uint64_t{});
}

void one_run(const Transfer& t, char* const* from, char* const* to, const Run& r) {
  const DType type = t.from[0].dtype;
  if (t.from.size() == 1) {
    const StridedView& f = t.from[0];
    for (size_t k = 0; k < t.to.size(); ++k)
      copy_run(from[0], r.dense ? 1 : f.strides[r.dim], to[k], r.dense ? 1 : t.to[k].strides[r.dim], r.length, r.dense,
               itemsize(type), streams(t));
    return;
  }
  switch (type) {
    case kFloat32:
      return reduce_run<float, float>(t, from, to, r.length, r.dense, r.dim);
    case kFloat64:
      return reduce_run<double, double>(t, from, to, r.length, r.dense, r.dim);
    case kBFloat16:
      return reduce_run<bfloat16, float>(t, from, to, r.length, r.dense, r.dim);
    case kFloat16:
      return reduce_run<float16, float>(t, from, to, r.length, r.dense, r.dim);
    default:
      WEFT_BUG_IF(!is_integral(type) && type != kBool, "collective: cannot combine ", type);
      with_integer(type, [&]<class T>(T) { reduce_run<T, int64_t>(t, from, to, r.length, r.dense, r.dim); });
  }
}

void split_boxes(int32_t index, const Shape& begin, const Shape& extent, int64_t elements, std::vector<Box>& boxes) {
  const int64_t n = extent.numel();
  if (n == 0) return;
  int d = 0;
  while (d < extent.size() && extent[d] == 1) ++d;
  if (n <= elements || d == extent.size()) {
    boxes.push_back({index, begin, extent});
    return;
  }
  const int64_t rest = n / extent[d], step = std::max<int64_t>(1, elements / rest);
  for (int64_t i = 0; i < extent[d]; i += step) {
    Shape b = begin, e = extent;
    b[d] += i;
    e[d] = std::min(step, extent[d] - i);
    split_boxes(index, b, e, elements, boxes);
  }
}

}  // namespace

StridedView slice(StridedView v, int dim, int64_t begin, int64_t extent) {
  v.data = static_cast<char*>(v.data) + begin * v.strides[dim] * itemsize(v.dtype);
  v.shape[dim] = extent;
  return v;
}

void cut(Transfer& t, int32_t index, int64_t bytes, std::vector<Box>& boxes) {
  bool flat = true;
  for (const auto* list : {&t.from, &t.to})
    for (const StridedView& v : *list) flat &= v.contiguous();
  if (flat)
    for (auto* list : {&t.from, &t.to})
      for (StridedView& v : *list) {
        v.shape = Shape{v.shape.numel()};
        v.strides = Shape{1};
      }
  split(t.shape(), index, bytes / itemsize(t.from[0].dtype), boxes);
}

void split(const Shape& shape, int32_t index, int64_t elements, std::vector<Box>& boxes) {
  split_boxes(index, Shape::filled(shape.size(), 0), shape, std::max<int64_t>(1, elements), boxes);
}

void run(const Transfer& t, const Box& box) {
  const Run r = run_of(t, box.extent);
  std::vector<char*> from(t.from.size()), to(t.to.size());
  Shape i = Shape::filled(r.dim, 0);
  while (true) {
    Shape index = box.begin;
    for (int d = 0; d < r.dim; ++d) index[d] += i[d];
    for (size_t k = 0; k < from.size(); ++k) from[k] = at(t.from[k], index);
    for (size_t k = 0; k < to.size(); ++k) to[k] = at(t.to[k], index);
    one_run(t, from.data(), to.data(), r);
    int d = r.dim - 1;
    while (d >= 0 && ++i[d] == box.extent[d]) i[d--] = 0;
    if (d < 0) break;
  }
#ifdef __SSE2__
  _mm_sfence();  // a thread that sees that the box is done also sees the streamed results
#endif
}

bool reduces(ReduceOp op, DType t) {
  if (is_floating(t)) return itemsize(t) > 1;
  if (t == kBool) return op == ReduceOp::kMax || op == ReduceOp::kMin;
  return op != ReduceOp::kAvg;
}

}  // namespace weft::dist::internal
