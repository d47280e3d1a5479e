#include "ops/core/products/dot_product.h"

#include <algorithm>
#include <cstring>

#include "ops/kernels/kernels.h"

namespace weft::internal {
Shape free_dims(int rank, const Shape& batch, const Shape& contract) {
  auto contains = [](const Shape& dims, int d) { return std::find(dims.begin(), dims.end(), d) != dims.end(); };
  Shape r;
  for (int d = 0; d < rank; ++d)
    if (!contains(batch, d) && !contains(contract, d)) r.push_back(d);
  return r;
}

std::optional<Shape> strides_of_rows(const Shape& shape, int64_t columns, int64_t distance) {
  Shape strides = shape;
  int64_t points = 1;
  bool whole = false;  // the dims so far are a row, or rows
  for (int d = shape.size() - 1; d >= 0; --d) {
    whole |= points == columns;
    strides[d] = whole ? points / columns * distance : points;
    points *= shape[d];
  }
  return whole || points == columns ? std::optional(strides) : std::nullopt;
}

int64_t padded_distance(int64_t columns, int64_t size, int64_t alignment) {
  constexpr int64_t kLine = 128;
  const int64_t bytes = columns * size;
  if (bytes % alignment == 0) return columns;
  const auto up = [&](int64_t multiple) { return (bytes + multiple - 1) / multiple * multiple; };
  int64_t padded = up(std::max(alignment, kLine));
  if (padded - bytes > bytes / 8) padded = up(alignment);
  return padded - bytes > bytes / 4 ? columns : padded / size;
}

std::optional<int64_t> row_distance(const StridedView& v, int64_t columns) {
  if (v.contiguous()) return columns;
  int64_t distance = columns, points = 1;
  for (int d = v.shape.size() - 1; d >= 0 && points <= columns; --d) {
    if (points == columns && v.shape[d] > 1) {
      distance = v.strides[d];
      break;
    }
    points *= v.shape[d];
  }
  const std::optional<Shape> strides = strides_of_rows(v.shape, columns, distance);
  if (!strides || distance < columns) return {};
  for (int d = 0; d < v.shape.size(); ++d)
    if (v.shape[d] > 1 && v.strides[d] != (*strides)[d]) return {};
  return distance;
}

DotProduct::Merged DotProduct::merge(const StridedView& in, const Shape& first, const Shape& second,
                                     const Shape& third) {
  Merged m;
  m.view = {in.data, in.dtype, {}, {}};
  int* end = m.ends;
  for (const Shape* group : {&first, &second, &third}) {
    int64_t extent = 1, stride = 0;
    bool started = false;
    for (int64_t d : *group) m.dims.push_back(d);
    *end++ = m.dims.size();
    for (int k = group->size() - 1; k >= 0; --k) {
      const int d = static_cast<int>((*group)[k]);
      if (in.shape[d] == 1) continue;
      if (started && in.strides[d] != stride * extent) m.copy = true;
      if (!started) stride = in.strides[d];
      started = true;
      extent *= in.shape[d];
    }
    m.view.shape.push_back(extent);
    m.view.strides.push_back(stride);
  }
  if (m.view.numel() == 0) m.copy = false;
  return m;
}

StridedView DotProduct::laid_out(const StridedView& in, const Merged& m, void* scratch) {
  StridedView v = m.view;
  v.data = in.data;
  if (!m.copy) return v;
  StridedView from{in.data, in.dtype, {}, {}};
  for (int64_t d : m.dims) {
    from.shape.push_back(in.shape[static_cast<int>(d)]);
    from.strides.push_back(in.strides[static_cast<int>(d)]);
  }
  kernels::cast_copy(from, {scratch, in.dtype, from.shape, contiguous_strides(from.shape)});
  v.data = scratch;
  v.strides = contiguous_strides(v.shape);
  return v;
}

DotProduct::DotProduct(const Attrs& attrs, std::span<const StridedView> in) {
  const Shape a_batch = attrs.ints("a_batch"), b_batch = attrs.ints("b_batch"), a_contract = attrs.ints("a_contract"),
              b_contract = attrs.ints("b_contract");
  a_ = merge(in[0], a_batch, free_dims(in[0].shape.size(), a_batch, a_contract), a_contract);
  b_ = merge(in[1], b_batch, b_contract, free_dims(in[1].shape.size(), b_batch, b_contract));
}

DotProduct::Operands DotProduct::operands(const StridedView& a, const StridedView& b, void* scratch) const {
  return {laid_out(a, a_, scratch), laid_out(b, b_, static_cast<char*>(scratch) + a_.bytes())};
}

// ---- gathered operands ----

namespace {

// An index of several dims that counts up, and its offset in memory.
class IndexCounter {
 public:
  IndexCounter(const Shape& extents, const Shape& strides, int64_t at) : extents_(extents), strides_(strides) {
    for (int d = extents.size() - 1; d >= 0; --d) {
      index_[d] = at % extents[d];
      at /= extents[d];
      offset_ += index_[d] * strides[d];
    }
  }
  int64_t offset() const { return offset_; }
  /// The index of the last dim.
  int64_t last() const { return extents_.empty() ? 0 : index_[extents_.size() - 1]; }
  /// Adds n to the last index, which becomes its extent at most.
  void skip(int64_t n) {
    for (int d = extents_.size() - 1; d >= 0; --d, n = 1) {
      index_[d] += n;
      offset_ += n * strides_[d];
      if (index_[d] < extents_[d]) return;
      index_[d] = 0;
      offset_ -= extents_[d] * strides_[d];
    }
  }

 private:
  const Shape &extents_, &strides_;
  int64_t index_[kMaxDims] = {}, offset_ = 0;
};

// Copies short runs without a call; they may be a few elements.
void copy_bytes(char* to, const char* from, int64_t n) {
  constexpr int64_t kPiece = 16, kMostPieces = 16;
  if (n < kPiece || n > kPiece * kMostPieces) {
    std::memcpy(to, from, static_cast<size_t>(n));
    return;
  }
  for (int64_t i = 0; i + kPiece < n; i += kPiece) std::memcpy(to + i, from + i, kPiece);
  std::memcpy(to + n - kPiece, from + n - kPiece, kPiece);
}

template <class T>
void copy_runs(const char* from, const int64_t* offsets, const int64_t* counts, int runs, int64_t stride, char* out) {
  T* to = reinterpret_cast<T*>(out);
  for (int r = 0; r < runs; ++r) {
    const T* const x = reinterpret_cast<const T*>(from + offsets[r]);
    const int64_t n = counts[r];
    if (stride == 1 && n > 3) {
      copy_bytes(reinterpret_cast<char*>(to), from + offsets[r], n * static_cast<int64_t>(sizeof(T)));
    } else {
      for (int64_t i = 0; i < n; ++i) to[i] = x[i * stride];
    }
    to += n;
  }
}

}  // namespace

void DotProduct::GemmOperands::Gather::run(const void* context, int64_t batch, int64_t row, int64_t col, int64_t rows,
                                           int64_t cols, void* out, int64_t ld) {
  const Gather& g = *static_cast<const Gather*>(context);
  // Lines are contiguous in `out`; `along` is the group of dims that a line walks.
  const int along = g.columns ? 1 : 2, across = 3 - along;
  const int64_t first = g.columns ? col : row, lines = g.columns ? cols : rows;
  const int64_t begin = g.columns ? row : col, length = g.columns ? rows : cols;
  const Shape& extents = g.extents[along];
  const int64_t inner = extents.empty() ? 1 : extents.back(), step = extents.empty() ? 0 : g.strides[along].back();
  const char* const base = g.data + IndexCounter(g.extents[0], g.strides[0], batch).offset() * g.size;
  // Divisions take longer than short runs, so each index is divided once: all lines have the same runs.
  constexpr int kRuns = 64;
  int64_t offsets[kRuns], counts[kRuns];
  IndexCounter run(extents, g.strides[along], begin);
  for (int64_t done = 0; done < length;) {
    int runs = 0;
    int64_t now = done;
    for (; runs < kRuns && now < length; ++runs) {
      counts[runs] = std::min(length - now, inner - run.last());
      offsets[runs] = run.offset() * g.size;
      now += counts[runs];
      run.skip(counts[runs]);
    }
    IndexCounter line(g.extents[across], g.strides[across], first);
    for (int64_t i = 0; i < lines; ++i, line.skip(1)) {
      const char* const from = base + line.offset() * g.size;
      char* const to = static_cast<char*>(out) + (i * ld + done) * g.size;
      if (g.size == 4) {
        copy_runs<uint32_t>(from, offsets, counts, runs, step, to);
      } else {
        copy_runs<uint16_t>(from, offsets, counts, runs, step, to);
      }
    }
    done = now;
  }
}

StridedView DotProduct::GemmOperands::place(const StridedView& in, const Merged& m, void* scratch, Gather& g) {
  if (!m.gathers()) return laid_out(in, m, scratch);
  g.data = static_cast<const char*>(in.data);
  g.size = itemsize(in.dtype);
  int at = 0;
  for (int group = 0; group < 3; ++group)
    for (; at < m.ends[group]; ++at) {
      const int d = static_cast<int>(m.dims[at]);
      if (in.shape[d] == 1) continue;
      Shape &extents = g.extents[group], &strides = g.strides[group];
      if (!extents.empty() && strides.back() == in.strides[d] * in.shape[d]) {  // one dim with the dim around it
        extents.back() *= in.shape[d];
        strides.back() = in.strides[d];
      } else {
        extents.push_back(in.shape[d]);
        strides.push_back(in.strides[d]);
      }
    }
  // Lines of the longer contiguous runs.
  auto run = [&](int group) {
    return !g.extents[group].empty() && g.strides[group].back() == 1 ? g.extents[group].back() : 1;
  };
  g.columns = run(1) > run(2);
  g.fill = {&Gather::run, &g, g.columns, 1};
  StridedView v = m.view;
  v.data = nullptr;
  v.strides = contiguous_strides(v.shape);
  return v;
}

DotProduct::GemmOperands::GemmOperands(const DotProduct& p, const StridedView& x, const StridedView& y, void* scratch)
    : a(place(x, p.a_, scratch, gather_[0])),
      b(place(y, p.b_, static_cast<char*>(scratch) + (p.a_.gathers() ? 0 : p.a_.bytes()), gather_[1])) {}

void DotProduct::GemmOperands::add_to(kernels::GemmHooks& hooks) const {
  if (gather_[0].data) hooks.a = &gather_[0].fill;
  if (gather_[1].data) hooks.b = &gather_[1].fill;
  if (gather_[1].data && in_panels()) hooks.panels = gather_[1].data;
}

// Whether b is [panels of columns, k, columns] in memory, as gemm packs it.
bool DotProduct::GemmOperands::in_panels() const {
  const Gather& g = gather_[1];
  const int64_t columns = kernels::gemm_panel(b.dtype), k = b.shape[1];
  return columns > 0 && a.shape[0] == 1 && a.shape[1] > 4 && g.extents[1] == Shape{k} &&
         g.strides[1] == Shape{columns} && g.extents[2] == Shape{b.shape[2] / columns, columns} &&
         g.strides[2] == Shape{k * columns, 1} && reinterpret_cast<uintptr_t>(g.data) % 64 == 0;
}

}  // namespace weft::internal
