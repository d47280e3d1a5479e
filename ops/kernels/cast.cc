#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "framework/base/cpu.h"
#include "framework/base/thread_pool.h"
#include "ops/kernels/kernels.h"
#include "ops/kernels/strided_loop.h"
#include "ops/kernels/tables.h"

namespace weft::kernels {
namespace {

constexpr int64_t kGrain = 1 << 15;

template <class T>
int copy_same(const void* const* in, void* out, int64_t n, uint32_t scalars) {
  if (scalars) {
    std::fill_n(static_cast<T*>(out), n, *static_cast<const T*>(in[0]));
  } else if (n > 0 && in[0] != out) {
    std::memmove(out, in[0], n * sizeof(T));
  }
  return 0;
}

PwFn copy_fn(int64_t size) {
  switch (size) {
    case 1:
      return &copy_same<uint8_t>;
    case 2:
      return &copy_same<uint16_t>;
    case 4:
      return &copy_same<uint32_t>;
    default:
      return &copy_same<uint64_t>;
  }
}

PwFn native_cast(DType from, DType to) {
  static const PwRow* const rows = WEFT_SELECT(cast_rows)();
  return rows[static_cast<int>(from)].by_dtype[static_cast<int>(to)];
}

// The 8-bit storage formats are converted through f32, by table and, for stores, one element at a time.
template <DType format>
int from_float8(const void* const* in, void* out, int64_t n, uint32_t scalars) {
  static const std::array<float, 256> table = [] {
    std::array<float, 256> t;
    for (int i = 0; i < 256; ++i) t[i] = float8_to_float(static_cast<uint8_t>(i), format);
    return t;
  }();
  const uint8_t* x = static_cast<const uint8_t*>(in[0]);
  float* y = static_cast<float*>(out);
  for (int64_t i = 0; i < n; ++i) y[i] = table[x[scalars ? 0 : i]];
  return 0;
}
template <DType format>
int to_float8(const void* const* in, void* out, int64_t n, uint32_t scalars) {
  const float* x = static_cast<const float*>(in[0]);
  uint8_t* y = static_cast<uint8_t*>(out);
  for (int64_t i = 0; i < n; ++i) y[i] = float8_from_float(x[scalars ? 0 : i], format);
  return 0;
}

bool is_float8(DType t) { return t >= kFloat8E4M3; }
PwFn half_cast(DType from, DType to) {
  if (is_float8(from)) return from == kFloat8E4M3 ? &from_float8<kFloat8E4M3> : &from_float8<kFloat8E5M2>;
  if (is_float8(to)) return to == kFloat8E4M3 ? &to_float8<kFloat8E4M3> : &to_float8<kFloat8E5M2>;
  return native_cast(from, to);
}

// An 8-bit format on one side and a type other than f32 on the other: two casts, block by block.
template <DType from, DType to>
int through_float(const void* const* in, void* out, int64_t n, uint32_t scalars) {
  const PwFn first = half_cast(from, kFloat32), second = half_cast(kFloat32, to);
  alignas(64) float block[512];
  const char* x = static_cast<const char*>(in[0]);
  char* y = static_cast<char*>(out);
  for (int64_t i = 0; i < n; i += 512) {
    const int64_t m = std::min<int64_t>(512, n - i);
    const void *p = x, *q = block;
    first(&p, block, m, scalars);
    second(&q, y, m, 0);
    if (!scalars) x += m * itemsize(from);
    y += m * itemsize(to);
  }
  return 0;
}
template <DType eight, int... d>
PwFn pick_from(DType to, std::integer_sequence<int, d...>) {
  static constexpr PwFn fns[] = {&through_float<eight, static_cast<DType>(d)>...};
  return fns[static_cast<int>(to)];
}
template <DType eight, int... d>
PwFn pick_to(DType from, std::integer_sequence<int, d...>) {
  static constexpr PwFn fns[] = {&through_float<static_cast<DType>(d), eight>...};
  return fns[static_cast<int>(from)];
}

PwFn cast_fn(DType from, DType to) {
  if (from == to) return copy_fn(itemsize(from));
  if (!is_float8(from) && !is_float8(to)) return native_cast(from, to);
  if (from == kFloat32 || to == kFloat32) return half_cast(from, to);
  constexpr auto all = std::make_integer_sequence<int, kNumDTypes>{};
  if (from == kFloat8E4M3) return pick_from<kFloat8E4M3>(to, all);
  if (from == kFloat8E5M2) return pick_from<kFloat8E5M2>(to, all);
  return to == kFloat8E4M3 ? pick_to<kFloat8E4M3>(from, all) : pick_to<kFloat8E5M2>(from, all);
}

}  // namespace

void cast_copy(const StridedView& in, const StridedView& out) {
  WEFT_CHECK(in.shape == out.shape || in.shape.empty(), "cast_copy: input has shape ", in.shape, "; need ", out.shape,
             " or []");
  const PwFn fn = cast_fn(in.dtype, out.dtype);
  const int64_t n = out.numel();
  if (n <= kGrain && out.contiguous() && in.shape.size() == out.shape.size() && in.contiguous()) {
    const void* data = in.data;
    fn(&data, out.data, n, 0);
    return;
  }
  strided_apply(fn, {&in, 1}, out, kGrain);
}

namespace {

template <class T>
void fill_with(const StridedView& out, T value) {
  StridedView v{&value, DTypeOf<T>::value, {}, {}};
  alignas(8) char converted[8];
  StridedView c{converted, out.dtype, {}, {}};
  cast_copy(v, c);
  cast_copy(c, out);
}

// Writes value(0), value(1), ... to a vector, converted from T to its dtype.
template <class T, class F>
void fill_range(const StridedView& out, const F& value) {
  WEFT_CHECK(out.shape.size() == 1, "iota: output has shape ", out.shape, "; need one dim");
  const int64_t stride = out.strides[0] * itemsize(out.dtype);
  parallel_chunks(out.shape[0], kGrain, [&](int64_t begin, int64_t end) {
    constexpr int64_t kBlock = 256;
    T values[kBlock];
    for (int64_t i = begin; i < end; i += kBlock) {
      const int64_t n = std::min(kBlock, end - i);
      for (int64_t j = 0; j < n; ++j) values[j] = value(i + j);
      cast_copy({values, DTypeOf<T>::value, {n}, {1}},
                {static_cast<char*>(out.data) + i * stride, out.dtype, {n}, {out.strides[0]}});
    }
  });
}

}  // namespace

void fill(const StridedView& out, double value) { fill_with(out, value); }

void fill_int(const StridedView& out, int64_t value) { fill_with(out, value); }

void iota(const StridedView& out, double start, double step) {
  fill_range<double>(out, [=](int64_t i) { return start + static_cast<double>(i) * step; });
}

void iota_int(const StridedView& out, int64_t start, int64_t step) {
  const auto from = static_cast<uint64_t>(start), by = static_cast<uint64_t>(step);
  fill_range<int64_t>(out, [=](int64_t i) { return static_cast<int64_t>(from + static_cast<uint64_t>(i) * by); });
}

}  // namespace weft::kernels
