#include "ops/kernels/moe.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "framework/base/thread_pool.h"
#include "ops/kernels/kernels.h"

namespace weft::kernels {
namespace {

constexpr int64_t kGrain = 1 << 14;  // elements worth a task

int64_t* whole_numbers(const StridedView& v) {
  WEFT_BUG_IF(v.dtype != kInt64 || !v.contiguous(), "expert_order: a result is ", v.dtype, v.shape,
              " that is not contiguous i64");
  return static_cast<int64_t*>(v.data);
}

int64_t index_at(const StridedView& v, int64_t i) {
  const int64_t at = i * v.strides[0];
  return v.dtype == kInt64 ? static_cast<const int64_t*>(v.data)[at] : static_cast<const int32_t*>(v.data)[at];
}

int64_t checked(const char* op, const StridedView& index, int64_t i, int64_t limit) {
  const int64_t v = index_at(index, i);
  if (v < 0 || v >= limit) [[unlikely]]
    internal::fail(Code::kOutOfRange,
                   str_cat(op, ": index ", v, " at position ", i, " is out of range; need 0 to ", limit - 1));
  return v;
}

/// Row r of a matrix as A: in place, or converted into the buffer.
template <class A>
const A* row_of(const StridedView& v, int64_t r, A* buffer) {
  char* p = static_cast<char*>(v.data) + r * v.strides[0] * itemsize(v.dtype);
  const int64_t n = v.shape[1];
  if (v.dtype == DTypeOf<A>::value && (v.strides[1] == 1 || n == 1)) return reinterpret_cast<const A*>(p);
  cast_copy({p, v.dtype, {n}, {v.strides[1]}}, {buffer, DTypeOf<A>::value, {n}, {1}});
  return buffer;
}

/// Rows first .. first + count of a matrix.
StridedView rows_of(const StridedView& v, int64_t first, int64_t count) {
  StridedView part = v;
  part.data = static_cast<char*>(v.data) + first * v.strides[0] * itemsize(v.dtype);
  part.shape[0] = count;
  return part;
}

template <class A>
A weight_of(const StridedView& w, int64_t slot) {
  const int64_t k = w.shape[1];
  char* p = static_cast<char*>(w.data) + (slot / k * w.strides[0] + slot % k * w.strides[1]) * itemsize(w.dtype);
  if (w.dtype == DTypeOf<A>::value) return *reinterpret_cast<const A*>(p);
  A v;
  cast_copy({p, w.dtype, {}, {}}, {&v, DTypeOf<A>::value, {}, {}});
  return v;
}

/// Sums of a contiguous [n, k, d] along dim, rounded once.
void add_up(const StridedView& parts, int dim, const StridedView& out) {
  if (out.dtype == parts.dtype) return reduce(Rd::sum, parts, 1u << dim, out, nullptr);
  std::vector<double> sums(out.numel());  // enough for either type
  const StridedView wide{sums.data(), parts.dtype, out.shape, contiguous_strides(out.shape)};
  reduce(Rd::sum, parts, 1u << dim, wide, nullptr);
  cast_copy(wide, out);
}

/// Calls f(A{}) for the accumulation type: f32, or f64 if an operand is f64.
template <class F>
void in_wide(DType a, DType b, F f) {
  if (a == kFloat64 || b == kFloat64) return f(double{});
  f(float{});
}

}  // namespace

void expert_order(const StridedView& experts, const StridedView& slots, const StridedView& tokens,
                  const StridedView& rows, const StridedView& counts, const StridedView& offsets) {
  const int64_t k = experts.shape[1], n = experts.numel(), num = counts.numel();
  int64_t *slot = whole_numbers(slots), *token = whole_numbers(tokens), *row = whole_numbers(rows),
          *count = whole_numbers(counts), *offset = whole_numbers(offsets);
  // `rows` stores the expert of each slot until the slot's row is known.
  cast_copy(experts, {row, kInt64, experts.shape, contiguous_strides(experts.shape)});
  const int64_t block = std::max<int64_t>(kGrain / 2, 4 * num), blocks = (n + block - 1) / block;
  std::vector<int64_t> next(static_cast<size_t>(blocks * num));  // first the counts, then the position of the next slot
  parallel_for(blocks, [&](int64_t b) {
    int64_t* here = next.data() + b * num;
    for (int64_t i = b * block, end = std::min(n, i + block); i < end; ++i) {
      if (row[i] < 0 || row[i] >= num) [[unlikely]]
        internal::fail(Code::kOutOfRange, str_cat("expert_order: expert ", row[i], " of token ", i / k, ", choice ",
                                                  i % k, ", is out of range; need 0 to ", num - 1));
      ++here[row[i]];
    }
  });
  int64_t at = 0;
  offset[0] = 0;
  for (int64_t e = 0; e < num; ++e) {
    for (int64_t b = 0; b < blocks; ++b) {
      const int64_t c = next[static_cast<size_t>(b * num + e)];
      next[static_cast<size_t>(b * num + e)] = at;
      at += c;
    }
    count[e] = at - offset[e];
    offset[e + 1] = at;
  }
  parallel_for(blocks, [&](int64_t b) {
    int64_t* here = next.data() + b * num;
    const int64_t first = b * block, end = std::min(n, first + block);
    for (int64_t i = first, t = first / k, j = first % k; i < end; ++i) {
      const int64_t to = here[row[i]]++;
      row[i] = to;
      slot[to] = i;
      token[to] = t;
      if (++j == k) j = 0, ++t;
    }
  });
}

void dispatch_rows(const StridedView& x, const StridedView& slots, const StridedView& tokens,
                   const StridedView* weights, const StridedView& out) {
  const int64_t n = out.shape[0], d = out.shape[1];
  if (out.numel() == 0) return;
  const bool copies = !weights && x.strides[1] == 1 && out.strides[1] == 1;
  parallel_chunks(n, std::max<int64_t>(1, kGrain / d), [&](int64_t begin, int64_t end) {
    in_wide(x.dtype, weights ? weights->dtype : x.dtype, [&](auto zero) {
      using A = decltype(zero);
      std::vector<A> buffer(copies ? 0 : d), product(weights ? d : 0);
      for (int64_t r = begin; r < end; ++r) {
        const int64_t t = checked("dispatch_rows", tokens, r, x.shape[0]);
        const StridedView to = rows_of(out, r, 1);
        if (!weights) {
          const StridedView from = rows_of(x, t, 1);
          if (copies) {
            std::memcpy(to.data, from.data, d * itemsize(x.dtype));
          } else {
            cast_copy({from.data, x.dtype, {d}, {x.strides[1]}}, {to.data, out.dtype, {d}, {out.strides[1]}});
          }
          continue;
        }
        const A w = weight_of<A>(*weights, checked("dispatch_rows", slots, r, weights->numel()));
        const A* from = row_of(x, t, buffer.data());
        for (int64_t c = 0; c < d; ++c) product[c] = from[c] * w;
        cast_copy({product.data(), DTypeOf<A>::value, {d}, {1}}, {to.data, out.dtype, {d}, {out.strides[1]}});
      }
    });
  });
}

void combine_rows(const StridedView& y, const StridedView& rows, const StridedView* weights, int64_t k,
                  const StridedView& out) {
  const int64_t n = out.shape[0], d = out.shape[1];
  if (out.numel() == 0) return;
  parallel_chunks(n, std::max<int64_t>(1, kGrain / (k * d)), [&](int64_t begin, int64_t end) {
    in_wide(y.dtype, weights ? weights->dtype : y.dtype, [&](auto zero) {
      using A = decltype(zero);
      std::vector<A> parts(static_cast<size_t>((end - begin) * k * d));
      A* to = parts.data();
      for (int64_t s = begin * k; s < end * k; ++s, to += d) {
        const A* from = row_of(y, checked("combine_rows", rows, s, y.shape[0]), to);
        if (weights) {
          const A w = weight_of<A>(*weights, s);
          for (int64_t c = 0; c < d; ++c) to[c] = from[c] * w;
        } else if (from != to) {
          std::memcpy(to, from, d * sizeof(A));
        }
      }
      add_up({parts.data(), DTypeOf<A>::value, {end - begin, k, d}, {k * d, d, 1}}, 1,
             rows_of(out, begin, end - begin));
    });
  });
}

void row_dots(const StridedView& y, const StridedView& x, const StridedView& rows, const StridedView& out) {
  const int64_t n = out.shape[0], k = out.shape[1], d = x.shape[1];
  if (out.numel() == 0) return;
  if (d == 0) return fill(out, 0);
  parallel_chunks(n, std::max<int64_t>(1, kGrain / (k * d)), [&](int64_t begin, int64_t end) {
    in_wide(y.dtype, x.dtype, [&](auto zero) {
      using A = decltype(zero);
      std::vector<A> parts(static_cast<size_t>((end - begin) * k * d)), buffer(d);
      A* to = parts.data();
      for (int64_t t = begin; t < end; ++t) {
        const A* b = row_of(x, t, buffer.data());
        for (int64_t j = 0; j < k; ++j, to += d) {
          const A* a = row_of(y, checked("row_dots", rows, t * k + j, y.shape[0]), to);
          for (int64_t c = 0; c < d; ++c) to[c] = a[c] * b[c];
        }
      }
      add_up({parts.data(), DTypeOf<A>::value, {end - begin, k, d}, {k * d, d, 1}}, 2,
             rows_of(out, begin, end - begin));
    });
  });
}

}  // namespace weft::kernels
