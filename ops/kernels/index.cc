#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include "framework/base/thread_pool.h"
#include "ops/kernels/kernels.h"
#include "ops/kernels/lines.h"

namespace weft::kernels {
namespace {

constexpr int64_t kGrain = 1 << 14;

int64_t read_index(const void* data, DType dtype, int64_t i) {
  return dtype == kInt64 ? static_cast<const int64_t*>(data)[i] : static_cast<const int32_t*>(data)[i];
}

[[noreturn]] void out_of_range(const char* name, int64_t value, int64_t position, int64_t limit) {
  internal::fail(Code::kOutOfRange,
                 str_cat(name, ": index ", value, " at position ", position, " is out of range",
                         limit > 0 ? str_cat("; need 0 to ", limit - 1) : ": there is nothing to choose from"));
}

void check_dtype(const char* name, const StridedView& index) {
  WEFT_CHECK(index.dtype == kInt64 || index.dtype == kInt32, name, ": index has dtype ", index.dtype,
             "; need i64 or i32");
}

template <class I>
bool all_below(const I* index, int64_t stride, int64_t n, int64_t limit) {
  bool ok = true;
  for (int64_t i = 0; i < n; ++i) ok &= static_cast<uint64_t>(index[i * stride]) < static_cast<uint64_t>(limit);
  return ok;
}

// Checks every index of an n-d view before anything is written.
void check_range(const char* name, const StridedView& index, int64_t limit) {
  const int64_t n = index.numel(), last = index.shape.empty() ? 1 : index.shape.back();
  if (n == 0) return;
  const StridedLines rows = index.shape.empty() ? StridedLines({index.data, index.dtype, {1}, {1}}, 0)
                                                : StridedLines(index, index.shape.size() - 1);
  parallel_chunks(rows.count, std::max<int64_t>(1, kGrain / last), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const void* p = rows.at(index, r, 0);
      const bool ok = index.dtype == kInt64 ? all_below(static_cast<const int64_t*>(p), rows.stride, last, limit)
                                            : all_below(static_cast<const int32_t*>(p), rows.stride, last, limit);
      for (int64_t i = 0; !ok && i < last; ++i) {
        const int64_t v = read_index(p, index.dtype, i * rows.stride);
        if (v < 0 || v >= limit) out_of_range(name, v, r * last + i, limit);
      }
    }
  });
}

template <class F>
void by_size(int64_t size, F f) {
  switch (size) {
    case 1:
      return f(uint8_t{});
    case 2:
      return f(uint16_t{});
    case 4:
      return f(uint32_t{});
    default:
      return f(uint64_t{});
  }
}

// Calls f(T{}) for the C++ type of a dtype that supports addition.
template <class F>
void by_number(const char* name, DType dtype, F f) {
  WEFT_CHECK(dtype != kBool && (!is_floating(dtype) || itemsize(dtype) > 1), name, ": does not support dtype ", dtype);
  if (is_floating(dtype)) return with_float(dtype, f);
  with_integer(dtype, [&]<class T>(T) { f(std::make_unsigned_t<T>{}); });  // sums wrap
}
template <class T>
T plus(T a, T b) {
  if constexpr (sizeof(T) == 2 && !std::is_integral_v<T>) {
    return T(static_cast<float>(a) + static_cast<float>(b));
  } else {
    return static_cast<T>(a + b);
  }
}

void copy_unless_same(const StridedView& in, const StridedView& out) {
  if (in.data != out.data || !(in.strides == out.strides)) cast_copy(in, out);
}

}  // namespace

void gather(const StridedView& in, const StridedView& index, int dim, const StridedView& out) {
  check_dtype("gather", index);
  const int rank = in.shape.size();
  WEFT_CHECK(index.shape == out.shape && rank == index.shape.size() && dim >= 0 && dim < rank && in.dtype == out.dtype,
             "gather: got ", in.dtype, in.shape, ", index ", index.shape, ", dim ", dim, " and output ", out.dtype,
             out.shape);
  for (int d = 0; d < rank; ++d)
    WEFT_CHECK(d == dim || index.shape[d] <= in.shape[d], "gather: index has ", index.shape[d], " in dim ", d,
               ", input ", in.shape[d]);
  if (out.numel() == 0) return;
  check_range("gather", index, in.shape[dim]);
  const int last = rank - 1;
  const StridedLines rows(index, last), to(out, last);
  // The input's lines, numbered like the index's; along dim itself the index gives the position.
  Shape from = in.strides;
  from[dim] = 0;
  const StridedLines in_rows({in.data, in.dtype, out.shape, from}, last);
  const int64_t n = out.shape[last], along = in.strides[dim], step = dim == last ? 0 : in.strides[last];
  by_size(itemsize(in.dtype), [&](auto zero) {
    using T = decltype(zero);
    parallel_chunks(rows.count, std::max<int64_t>(1, kGrain / n), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        const T* x = reinterpret_cast<const T*>(in_rows.at(in, r, 0));
        T* y = reinterpret_cast<T*>(to.at(out, r, 0));
        const void* idx = rows.at(index, r, 0);
        for (int64_t i = 0; i < n; ++i)
          y[i * to.stride] = x[read_index(idx, index.dtype, i * rows.stride) * along + i * step];
      }
    });
  });
}

namespace {

// The distance between successive indices, if it is the same everywhere; otherwise 0.
template <class I>
int64_t constant_step(const I* index, int64_t stride, int64_t n) {
  const int64_t step = n > 1 ? index[stride] - index[0] : 0;
  for (int64_t i = 2; i < n; ++i)
    if (index[i * stride] != index[(i - 1) * stride] + step) return 0;
  return step;
}
int64_t constant_step(const StridedView& index) {
  const int64_t stride = index.strides[0], n = index.shape[0];
  return index.dtype == kInt64 ? constant_step(index.as<int64_t>(), stride, n)
                               : constant_step(index.as<int32_t>(), stride, n);
}

// y[i] = x[-i]. Blocks of a constant size become vector instructions.
template <class T>
void copy_backwards(const T* x, T* y, int64_t n) {
  constexpr int64_t kBlock = 64 / sizeof(T);
  int64_t i = 0;
  for (; i + kBlock <= n; i += kBlock) {
    T block[kBlock];
    std::memcpy(block, x - i - (kBlock - 1), sizeof block);
    for (int64_t j = 0; j < kBlock; ++j) y[i + j] = block[kBlock - 1 - j];
  }
  for (; i < n; ++i) y[i] = x[-i];
}

// One element for each index: y[i * to] = x[index[i] * from].
template <class T, class I>
void pick_elements(const T* x, int64_t from, const I* index, int64_t stride, T* y, int64_t to, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i * to] = x[index[i * stride] * from];
}

}  // namespace

void index_select(const StridedView& in, const StridedView& index, int dim, const StridedView& out) {
  check_dtype("index_select", index);
  WEFT_CHECK(index.shape.size() == 1 && dim >= 0 && dim < in.shape.size() && in.dtype == out.dtype,
             "index_select: got ", in.dtype, in.shape, ", index ", index.shape, ", dim ", dim, " and output ",
             out.dtype, out.shape);
  Shape need = in.shape;
  need[dim] = index.shape[0];
  WEFT_CHECK(out.shape == need, "index_select: output has shape ", out.shape, "; need ", need);
  if (out.numel() == 0) return;
  check_range("index_select", index, in.shape[dim]);
  // Views of the dims before dim, and of one slab after it.
  Shape outer, outer_in, outer_out, inner, inner_in, inner_out;
  for (int d = 0; d < in.shape.size(); ++d) {
    if (d == dim) continue;
    (d < dim ? outer : inner).push_back(in.shape[d]);
    (d < dim ? outer_in : inner_in).push_back(in.strides[d]);
    (d < dim ? outer_out : inner_out).push_back(out.strides[d]);
  }
  const int64_t slab = inner.numel(), n = index.shape[0], size = itemsize(in.dtype), stride = index.strides[0];
  const int64_t from_step = in.strides[dim], to_step = out.strides[dim];
  const bool dense = is_contiguous(inner, inner_in) && is_contiguous(inner, inner_out);
  const bool backwards = slab == 1 && to_step == 1 && constant_step(index) * from_step == -1;
  // Copies the slabs of indices first to first + count of one position of the outer dims.
  auto copy = [&](char* x, char* y, int64_t first, int64_t count) {
    if (slab == 1) {
      by_size(size, [&](auto zero) {
        using T = decltype(zero);
        const T* from = reinterpret_cast<const T*>(x);
        T* to = reinterpret_cast<T*>(y) + first * to_step;
        if (backwards) {
          copy_backwards(from + read_index(index.data, index.dtype, first * stride) * from_step, to, count);
        } else if (index.dtype == kInt64) {
          pick_elements(from, from_step, index.as<int64_t>() + first * stride, stride, to, to_step, count);
        } else {
          pick_elements(from, from_step, index.as<int32_t>() + first * stride, stride, to, to_step, count);
        }
      });
      return;
    }
    for (int64_t i = first; i < first + count; ++i) {
      char* from = x + read_index(index.data, index.dtype, i * stride) * from_step * size;
      char* to = y + i * to_step * size;
      if (dense) {
        std::memcpy(to, from, slab * size);
      } else {
        cast_copy({from, in.dtype, inner, inner_in}, {to, out.dtype, inner, inner_out});
      }
    }
  };
  parallel_chunks(outer.numel() * n, std::max<int64_t>(1, kGrain / slab), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin, count; t < end; t += count) {
      const int64_t first = t % n;
      count = std::min(n - first, end - t);
      int64_t o = t / n, from = 0, to = 0;
      for (int d = outer.size() - 1; d >= 0; --d) {
        from += o % outer[d] * outer_in[d];
        to += o % outer[d] * outer_out[d];
        o /= outer[d];
      }
      copy(static_cast<char*>(in.data) + from * size, static_cast<char*>(out.data) + to * size, first, count);
    }
  });
}

void scatter_add(const StridedView& in, const StridedView& index, const StridedView& src, int dim,
                 const StridedView& out) {
  check_dtype("scatter_add", index);
  const int rank = in.shape.size();
  WEFT_CHECK(in.shape == out.shape && rank == index.shape.size() && rank == src.shape.size() && dim >= 0 &&
                 dim < rank && in.dtype == out.dtype && in.dtype == src.dtype,
             "scatter_add: got ", in.dtype, in.shape, ", index ", index.shape, ", src ", src.dtype, src.shape, ", dim ",
             dim, " and output ", out.dtype, out.shape);
  for (int d = 0; d < rank; ++d)
    WEFT_CHECK(index.shape[d] <= src.shape[d] && (d == dim || index.shape[d] <= in.shape[d]), "scatter_add: index has ",
               index.shape[d], " in dim ", d, ", src ", src.shape[d], ", input ", in.shape[d]);
  check_range("scatter_add", index, in.shape[dim]);
  copy_unless_same(in, out);
  if (index.numel() == 0) return;
  // Lines along dim are disjoint. Each belongs to one task, in order, so the sums do not depend on threads.
  const StridedLines lines(index, dim), from({src.data, src.dtype, index.shape, src.strides}, dim);
  const StridedLines to({out.data, out.dtype, index.shape, out.strides}, dim);
  by_number("scatter_add", in.dtype, [&](auto zero) {
    using T = decltype(zero);
    parallel_chunks(lines.count, std::max<int64_t>(1, kGrain / lines.length), [&](int64_t begin, int64_t end) {
      for (int64_t l = begin; l < end; ++l) {
        const void* idx = lines.at(index, l, 0);
        const T* x = reinterpret_cast<const T*>(from.at(src, l, 0));
        T* y = reinterpret_cast<T*>(to.at(out, l, 0));
        auto place = [&](int64_t i) { return read_index(idx, index.dtype, i * lines.stride); };
        if constexpr (sizeof(T) == 2 && !std::is_integral_v<T>) {
          if (lines.length > 1) {  // accumulated in f32, rounded once
            std::vector<float> sums(out.shape[dim]);
            for (size_t k = 0; k < sums.size(); ++k) sums[k] = y[static_cast<int64_t>(k) * to.stride];
            for (int64_t i = 0; i < lines.length; ++i) sums[place(i)] += static_cast<float>(x[i * from.stride]);
            for (size_t k = 0; k < sums.size(); ++k) y[static_cast<int64_t>(k) * to.stride] = T(sums[k]);
            continue;
          }
        }
        for (int64_t i = 0; i < lines.length; ++i) {
          T& v = y[place(i) * to.stride];
          v = plus(v, x[i * from.stride]);
        }
      }
    });
  });
}

namespace {

// Sources ordered by target row; sources of the same row keep their order.
std::vector<int64_t> order_by_target(const StridedView& index, int64_t rows) {
  const int64_t n = index.shape[0];
  std::vector<int64_t> order(n);
  auto target = [&](int64_t i) { return read_index(index.data, index.dtype, i * index.strides[0]); };
  if (rows <= 8 * n) {
    std::vector<int64_t> start(rows + 1);
    for (int64_t i = 0; i < n; ++i) ++start[target(i) + 1];
    std::partial_sum(start.begin(), start.end(), start.begin());
    for (int64_t i = 0; i < n; ++i) order[start[target(i)]++] = i;
  } else {
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return target(a) < target(b); });
  }
  return order;
}

template <class Acc>
void add_rows(const StridedView& index, const StridedView& src, const StridedView& out, const Shape& inner,
              const Shape& src_in, const Shape& out_in) {
  constexpr int64_t kColumns = 512;
  const int64_t n = index.shape[0], width = inner.numel();
  const std::vector<int64_t> order = order_by_target(index, out.shape[0]);
  auto target = [&](int64_t at) { return read_index(index.data, index.dtype, order[at] * index.strides[0]); };
  const DType type = DTypeOf<Acc>::value;
  const bool dense = is_contiguous(inner, src_in) && is_contiguous(inner, out_in);
  // Columns are split only if a row is contiguous.
  const int64_t columns = dense ? std::min(width, kColumns) : width, strips = (width + columns - 1) / columns;
  const int64_t groups = std::max<int64_t>(1, std::min<int64_t>(n, n * width / kGrain));
  parallel_for(groups * strips, [&](int64_t task) {
    const int64_t strip = task % strips * columns, cols = std::min(columns, width - strip);
    // A group owns the rows that begin in its share.
    int64_t at = n * (task / strips) / groups, end = n * (task / strips + 1) / groups;
    while (at > 0 && at < n && target(at) == target(at - 1)) ++at;
    std::vector<Acc> acc(cols), row(cols);
    const Shape flat{cols}, one{1};
    auto view = [&](const StridedView& v, int64_t r, const Shape& strides) -> StridedView {
      char* p = static_cast<char*>(v.data) + (r * v.strides[0] + (dense ? strip : 0)) * itemsize(v.dtype);
      return dense ? StridedView{p, v.dtype, flat, one} : StridedView{p, v.dtype, inner, strides};
    };
    const Shape packed_shape = dense ? flat : inner, packed_strides = dense ? one : contiguous_strides(inner);
    while (at < end) {
      const int64_t to = target(at);
      const StridedView y = view(out, to, out_in);
      cast_copy(y, {acc.data(), type, packed_shape, packed_strides});
      for (; at < n && target(at) == to; ++at) {
        const StridedView x = view(src, order[at], src_in);
        const Acc* p = static_cast<const Acc*>(x.data);
        if (!dense || x.dtype != type) {
          cast_copy(x, {row.data(), type, packed_shape, packed_strides});
          p = row.data();
        }
        for (int64_t c = 0; c < cols; ++c) acc[c] += p[c];
      }
      cast_copy({acc.data(), type, packed_shape, packed_strides}, y);
    }
  });
}

// Checks the arguments of index_add and index_copy, and copies `in` to `out`.
void start_rows(const char* op, const StridedView& in, const StridedView& index, const StridedView& src,
                const StridedView& out) {
  check_dtype(op, index);
  WEFT_CHECK(in.shape == out.shape && in.dtype == out.dtype && src.dtype == in.dtype && !in.shape.empty() &&
                 index.shape.size() == 1 && src.shape.size() == in.shape.size() && src.shape[0] == index.shape[0],
             op, ": got ", in.dtype, in.shape, ", index ", index.shape, ", src ", src.dtype, src.shape, " and output ",
             out.dtype, out.shape);
  for (int d = 1; d < in.shape.size(); ++d)
    WEFT_CHECK(src.shape[d] == in.shape[d], op, ": src has shape ", src.shape, ", input ", in.shape);
  check_range(op, index, in.shape[0]);
  copy_unless_same(in, out);
}

}  // namespace

void index_add(const StridedView& in, const StridedView& index, const StridedView& src, const StridedView& out) {
  start_rows("index_add", in, index, src, out);
  Shape inner, src_in, out_in;
  for (int d = 1; d < in.shape.size(); ++d) {
    inner.push_back(in.shape[d]);
    src_in.push_back(src.strides[d]);
    out_in.push_back(out.strides[d]);
  }
  if (index.numel() == 0 || out.numel() == 0) return;
  if (in.dtype == kFloat64) return add_rows<double>(index, src, out, inner, src_in, out_in);
  if (is_floating(in.dtype)) return add_rows<float>(index, src, out, inner, src_in, out_in);
  add_rows<int64_t>(index, src, out, inner, src_in, out_in);
}

void index_copy(const StridedView& in, const StridedView& index, const StridedView& src, const StridedView& out) {
  start_rows("index_copy", in, index, src, out);
  StridedView from = src, to = out;
  if (index.numel() == 0 || src.numel() == 0) return;
  from.shape[0] = to.shape[0] = 1;
  const int64_t size = itemsize(out.dtype), bytes = from.numel() * size;
  const bool dense = from.contiguous() && to.contiguous();
  // Rows are written in order: if a row is written twice, the last write stays.
  for (int64_t i = 0; i < index.shape[0]; ++i) {
    from.data = static_cast<char*>(src.data) + i * src.strides[0] * size;
    to.data = static_cast<char*>(out.data) +
              read_index(index.data, index.dtype, i * index.strides[0]) * out.strides[0] * size;
    if (dense) {
      std::memcpy(to.data, from.data, static_cast<size_t>(bytes));
    } else {
      cast_copy(from, to);
    }
  }
}

}  // namespace weft::kernels
