#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

#include "framework/base/thread_pool.h"
#include "ops/kernels/kernels.h"
#include "ops/kernels/lines.h"

namespace weft::kernels {
namespace {

// A value as an unsigned key in the same order: NaN is above all; zeros of both signs are equal.
uint64_t key_of(double v) {
  if (v != v) return ~uint64_t{0};
  const uint64_t u = std::bit_cast<uint64_t>(v + 0.0);
  return u >> 63 ? ~u : u | (uint64_t{1} << 63);
}
uint32_t key_of(float v) {
  if (v != v) return ~uint32_t{0};
  const uint32_t u = std::bit_cast<uint32_t>(v + 0.0f);
  return u >> 31 ? ~u : u | (uint32_t{1} << 31);
}
uint64_t key_of(int64_t v) { return static_cast<uint64_t>(v) ^ (uint64_t{1} << 63); }
uint32_t key_of(int32_t v) { return static_cast<uint32_t>(v) ^ (uint32_t{1} << 31); }
uint32_t key_of(uint8_t v) { return v; }
uint32_t key_of(bfloat16 v) { return key_of(static_cast<float>(v)); }
uint32_t key_of(float16 v) { return key_of(static_cast<float>(v)); }

// Key and index in one comparison: equal keys keep the order of their indices.
struct Wide {
  uint64_t key;
  uint64_t index;
  friend bool operator<(const Wide& a, const Wide& b) { return a.key != b.key ? a.key < b.key : a.index < b.index; }
};
uint64_t entry(uint32_t key, int64_t index) { return static_cast<uint64_t>(key) << 32 | static_cast<uint32_t>(index); }
Wide entry(uint64_t key, int64_t index) { return {key, static_cast<uint64_t>(index)}; }
int64_t index_of(uint64_t e) { return static_cast<int64_t>(e & 0xffffffffu); }
int64_t index_of(const Wide& e) { return static_cast<int64_t>(e.index); }
uint64_t key_part(uint64_t e) { return e >> 32; }
uint64_t key_part(const Wide& e) { return e.key; }

template <class T>
using EntryOf = decltype(entry(key_of(T{}), int64_t{0}));

template <class T>
void read_entries(const T* x, int64_t n, int64_t stride, bool descending, std::vector<EntryOf<T>>& e) {
  e.resize(n);
  for (int64_t i = 0; i < n; ++i) {
    auto k = key_of(x[i * stride]);
    e[i] = entry(static_cast<decltype(k)>(descending ? ~k : k), i);
  }
}

// Sorts by counting if the keys span a small range (experts, tokens, bins), otherwise by comparison.
template <class E>
void sort_entries(std::vector<E>& e, std::vector<E>& spare, std::vector<int64_t>& counts) {
  const int64_t n = e.size();
  if (n > 64) {
    uint64_t low = ~uint64_t{0}, high = 0;
    for (const E& v : e) low = std::min(low, key_part(v)), high = std::max(high, key_part(v));
    if (high - low <= static_cast<uint64_t>(2 * n)) {
      counts.assign(high - low + 2, 0);
      for (const E& v : e) ++counts[key_part(v) - low + 1];
      for (size_t i = 1; i < counts.size(); ++i) counts[i] += counts[i - 1];
      spare.resize(n);
      for (const E& v : e) spare[counts[key_part(v) - low]++] = v;
      e.swap(spare);
      return;
    }
  }
  std::sort(e.begin(), e.end());
}

template <class T, class E>
void write_line(const StridedView& in, const StridedLines& lines, const StridedView& values, const StridedView& indices,
                const StridedLines* value_lines, const StridedLines* index_lines, int64_t line, const E* e, int64_t n) {
  const T* x = reinterpret_cast<const T*>(lines.at(in, line, 0));
  if (value_lines) {
    T* y = reinterpret_cast<T*>(value_lines->at(values, line, 0));
    for (int64_t i = 0; i < n; ++i) y[i * value_lines->stride] = x[index_of(e[i]) * lines.stride];
  }
  if (index_lines) {
    int64_t* y = reinterpret_cast<int64_t*>(index_lines->at(indices, line, 0));
    for (int64_t i = 0; i < n; ++i) y[i * index_lines->stride] = index_of(e[i]);
  }
}

// The first k entries in order: by insertion if k is small, otherwise by selection.
template <class E>
void select(std::vector<E>& e, int64_t k) {
  const int64_t n = e.size();
  if (k <= 16) {
    int64_t have = 0;
    for (int64_t i = 0; i < n; ++i) {
      const E v = e[i];
      if (have == k && !(v < e[k - 1])) continue;
      int64_t at = have < k ? have++ : k - 1;
      // Entries before i that dropped out are no longer needed, so their positions can be reused.
      for (; at > 0 && v < e[at - 1]; --at) e[at] = e[at - 1];
      e[at] = v;
    }
  } else {
    if (k < n) std::nth_element(e.begin(), e.begin() + k, e.end());
    std::sort(e.begin(), e.begin() + k);
  }
}

// Sorts whole lines if k < 0.
template <class T>
void order(const StridedView& in, int64_t k, int dim, bool descending, const StridedView& values,
           const StridedView& indices) {
  const StridedLines lines(in, dim);
  const StridedLines value_lines = values.data ? StridedLines(values, dim) : lines,
                     index_lines = indices.data ? StridedLines(indices, dim) : lines;
  const int64_t n = lines.length, grain = std::max<int64_t>(1, (1 << 12) / std::max<int64_t>(n, 1));
  parallel_chunks(lines.count, grain, [&](int64_t begin, int64_t end) {
    std::vector<EntryOf<T>> e, spare;
    std::vector<int64_t> counts;
    for (int64_t line = begin; line < end; ++line) {
      read_entries(reinterpret_cast<const T*>(lines.at(in, line, 0)), n, lines.stride, descending, e);
      if (k < 0) {
        sort_entries(e, spare, counts);
      } else {
        select(e, k);
      }
      write_line<T>(in, lines, values, indices, values.data ? &value_lines : nullptr,
                    indices.data ? &index_lines : nullptr, line, e.data(), k < 0 ? n : k);
    }
  });
}

void dispatch(const char* name, const StridedView& in, int64_t k, int dim, bool descending, const StridedView& values,
              const StridedView& indices) {
  Shape shape = in.shape;
  WEFT_CHECK(dim >= 0 && dim < in.shape.size(), name, ": got dim ", dim, " of shape ", in.shape);
  if (k >= 0) {
    WEFT_CHECK(k <= shape[dim], name, ": k is ", k, "; dim ", dim, " has only ", shape[dim], " elements");
    shape[dim] = k;
  }
  WEFT_CHECK(in.shape[dim] < int64_t{1} << 32, name, ": dim ", dim, " has ", in.shape[dim],
             " elements; need less than 2^32");
  WEFT_CHECK(!values.data || (values.dtype == in.dtype && values.shape == shape), name, ": values are ", values.dtype,
             values.shape, "; need ", in.dtype, shape);
  WEFT_CHECK(!indices.data || (indices.dtype == kInt64 && indices.shape == shape), name, ": indices are ",
             indices.dtype, indices.shape, "; need i64", shape);
  if (shape.numel() == 0) return;
  WEFT_CHECK(!is_floating(in.dtype) || itemsize(in.dtype) > 1, name, ": does not support dtype ", in.dtype);
  const auto run = [&]<class T>(T) { order<T>(in, k, dim, descending, values, indices); };
  is_floating(in.dtype) ? with_float(in.dtype, run) : with_integer(in.dtype, run);
}

}  // namespace

void sort(const StridedView& in, int dim, bool descending, const StridedView& values, const StridedView& indices) {
  dispatch("sort", in, -1, dim, descending, values, indices);
}

void topk(const StridedView& in, int64_t k, int dim, bool largest, const StridedView& values,
          const StridedView& indices) {
  WEFT_CHECK(k >= 0, "topk: k is ", k, "; need at least 0");
  dispatch("topk", in, k, dim, largest, values, indices);
}

}  // namespace weft::kernels
