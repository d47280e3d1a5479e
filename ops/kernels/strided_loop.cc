#include "ops/kernels/strided_loop.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>

#include "framework/base/thread_pool.h"

namespace weft::kernels {
namespace {

// A call after collapsing: dims from outermost to innermost by out's strides.
struct CollapsedCall {
  int operands = 0;  // inputs; the output's entry follows them
  int dims = 0;
  int64_t extent[kMaxDims];
  int64_t stride[kMaxOperands + 1][kMaxDims];  // bytes
  char* data[kMaxOperands + 1];
  int64_t size[kMaxOperands + 1];
};

CollapsedCall collapse(std::span<const StridedView> in, const StridedView& out) {
  CollapsedCall p;
  p.operands = static_cast<int>(in.size());
  auto view = [&](int k) -> const StridedView& { return k < p.operands ? in[k] : out; };
  int order[kMaxDims], n = 0;
  for (int d = 0; d < out.shape.size(); ++d) {
    if (out.shape[d] == 1) continue;
    int at = n++;  // insertion sort by descending stride of out; equal ones keep their order
    while (at > 0 && std::abs(out.strides[order[at - 1]]) < std::abs(out.strides[d])) order[at] = order[at - 1], --at;
    order[at] = d;
  }
  for (int k = 0; k <= p.operands; ++k) {
    p.data[k] = static_cast<char*>(view(k).data);
    p.size[k] = itemsize(view(k).dtype);
  }
  auto stride = [&](int k, int d) {
    const StridedView& v = view(k);
    return v.shape.size() != out.shape.size() || v.shape[d] == 1 ? 0 : v.strides[d] * p.size[k];
  };
  for (int i = 0; i < n; ++i) {
    const int d = order[i];
    bool merges = p.dims > 0;
    for (int k = 0; merges && k <= p.operands; ++k) merges = p.stride[k][p.dims - 1] == stride(k, d) * out.shape[d];
    if (merges) {
      p.extent[p.dims - 1] *= out.shape[d];
    } else {
      p.extent[p.dims++] = out.shape[d];
    }
    for (int k = 0; k <= p.operands; ++k) p.stride[k][p.dims - 1] = stride(k, d);
  }
  if (!p.dims) {
    p.dims = 1;
    p.extent[0] = 1;
    for (int k = 0; k <= p.operands; ++k) p.stride[k][0] = 0;
    p.stride[p.operands][0] = p.size[p.operands];
  }
  return p;
}

// Transposes N x N elements in registers: source rows and target columns are contiguous.
typedef uint32_t Four __attribute__((vector_size(16)));
typedef uint16_t Eight __attribute__((vector_size(16)));

template <class V>
V load(const char* p) {
  V v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
void transpose_block(const char* src, int64_t src_row, char* dst, int64_t dst_col, uint32_t) {
  Four a = load<Four>(src), b = load<Four>(src + src_row), c = load<Four>(src + 2 * src_row),
       d = load<Four>(src + 3 * src_row);
  const Four low = {0, 4, 1, 5}, high = {2, 6, 3, 7}, first = {0, 1, 4, 5}, second = {2, 3, 6, 7};
  const Four ab = __builtin_shuffle(a, b, low), cd = __builtin_shuffle(c, d, low);
  const Four ab2 = __builtin_shuffle(a, b, high), cd2 = __builtin_shuffle(c, d, high);
  const Four out[4] = {__builtin_shuffle(ab, cd, first), __builtin_shuffle(ab, cd, second),
                       __builtin_shuffle(ab2, cd2, first), __builtin_shuffle(ab2, cd2, second)};
  for (int i = 0; i < 4; ++i) std::memcpy(dst + i * dst_col, &out[i], 16);
}
void transpose_block(const char* src, int64_t src_row, char* dst, int64_t dst_col, uint16_t) {
  Eight v[8], w[8];
  for (int i = 0; i < 8; ++i) v[i] = load<Eight>(src + i * src_row);
  const Eight low = {0, 8, 1, 9, 2, 10, 3, 11}, high = {4, 12, 5, 13, 6, 14, 7, 15};
  for (int round = 0; round < 3; ++round) {  // each round interleaves rows i and i + 4
    for (int i = 0; i < 4; ++i) {
      w[2 * i] = __builtin_shuffle(v[i], v[i + 4], low);
      w[2 * i + 1] = __builtin_shuffle(v[i], v[i + 4], high);
    }
    for (int i = 0; i < 8; ++i) v[i] = w[i];
  }
  for (int i = 0; i < 8; ++i) std::memcpy(dst + i * dst_col, &v[i], 16);
}

template <class T>
void copy_elements(const char* src, int64_t src_row, int64_t src_col, char* dst, int64_t dst_row, int64_t dst_col,
                   int64_t rows, int64_t cols) {
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < cols; ++c)
      std::memcpy(dst + r * dst_row + c * dst_col, src + r * src_row + c * src_col, sizeof(T));
}

template <class T>
void copy_2d_of(const char* src, int64_t src_row, int64_t src_col, char* dst, int64_t dst_row, int64_t dst_col,
                int64_t rows, int64_t cols) {
  constexpr int64_t size = sizeof(T);
  // The inner loop follows the source's short stride, so that each source cache line is used at once.
  if (rows > 1 && std::abs(src_row) < std::abs(src_col)) {
    std::swap(src_row, src_col);
    std::swap(dst_row, dst_col);
    std::swap(rows, cols);
  }
  if (src_col == size && dst_col == size) {
    for (int64_t r = 0; r < rows; ++r) std::memcpy(dst + r * dst_row, src + r * src_row, cols * size);
    return;
  }
  if constexpr (size == 2 || size == 4) {
    constexpr int64_t kStep = 16 / size;
    if (src_col == size && dst_row == size && rows >= kStep && cols >= kStep) {
      const int64_t whole_rows = rows / kStep * kStep, whole_cols = cols / kStep * kStep;
      for (int64_t r = 0; r < whole_rows; r += kStep) {
        // The next block continues where this one ends; its lines are too far apart for the hardware prefetcher.
        for (int64_t i = 0; i < kStep; ++i)
          for (int64_t line = 0; line < cols * size; line += 64)
            __builtin_prefetch(src + (r + i) * src_row + cols * size + line);
        for (int64_t c = 0; c < whole_cols; c += kStep)
          transpose_block(src + r * src_row + c * size, src_row, dst + r * size + c * dst_col, dst_col, T{});
      }
      copy_elements<T>(src + whole_cols * size, src_row, size, dst + whole_cols * dst_col, size, dst_col, whole_rows,
                       cols - whole_cols);
      copy_elements<T>(src + whole_rows * src_row, src_row, size, dst + whole_rows * size, size, dst_col,
                       rows - whole_rows, cols);
      return;
    }
  }
  copy_elements<T>(src, src_row, src_col, dst, dst_row, dst_col, rows, cols);
}

void copy_bytes_2d(const char* src, int64_t src_row, int64_t src_col, char* dst, int64_t dst_row, int64_t dst_col,
                   int64_t rows, int64_t cols, int64_t size) {
  switch (size) {
    case 1:
      return copy_2d_of<uint8_t>(src, src_row, src_col, dst, dst_row, dst_col, rows, cols);
    case 2:
      return copy_2d_of<uint16_t>(src, src_row, src_col, dst, dst_row, dst_col, rows, cols);
    case 4:
      return copy_2d_of<uint32_t>(src, src_row, src_col, dst, dst_row, dst_col, rows, cols);
    default:
      return copy_2d_of<uint64_t>(src, src_row, src_col, dst, dst_row, dst_col, rows, cols);
  }
}

// How the space is split: blocks of `rows` along dim `partner` (none: -1) times `cols` along the innermost dim.
struct SpaceBlocks {
  int partner = -1;
  int64_t rows = 1, cols = 1;
  int64_t row_blocks = 1, col_blocks = 1, outer = 1;
  bool packed = false;  // short inner dim: every operand is packed into a tile, and fn runs once per block
  bool tiled[kMaxOperands + 1] = {};
};

constexpr int64_t kTile = 4096;  // elements of a tile

SpaceBlocks cut(const CollapsedCall& p, int64_t grain) {
  SpaceBlocks b;
  const int inner = p.dims - 1, all = p.operands + 1;
  const int64_t extent = p.extent[inner];
  bool any = false;
  for (int k = 0; k < all; ++k) {
    const int64_t s = p.stride[k][inner];
    b.tiled[k] = s != p.size[k] && (s != 0 || k == p.operands) && extent > 1;
    any |= b.tiled[k];
  }
  b.packed = p.dims > 1 && extent < 32;
  if (b.packed) {
    b.partner = inner - 1;
    b.cols = extent;
    b.rows = std::min(p.extent[b.partner], std::max<int64_t>(1, kTile / extent));
  } else if (any) {
    // The partner is the dim along which the first tiled operand is closest to contiguous.
    for (int k = 0; k < all && b.partner < 0; ++k) {
      if (!b.tiled[k]) continue;
      int64_t best = std::abs(p.stride[k][inner]);
      for (int d = 0; d < inner; ++d) {
        const int64_t s = std::abs(p.stride[k][d]);
        if (s != 0 && s < best) best = s, b.partner = d;
      }
    }
    b.rows = b.partner < 0 ? 1 : std::min<int64_t>(p.extent[b.partner], 32);
    b.cols = std::min<int64_t>(extent, kTile / b.rows);
  } else {
    b.cols = std::min<int64_t>(extent, grain);
    if (p.dims > 1 && extent < kTile) {  // several rows at once: finding a block costs as much as a short row
      b.partner = inner - 1;
      b.rows = std::min(p.extent[b.partner], kTile / extent);
    }
  }
  b.col_blocks = (extent + b.cols - 1) / b.cols;
  if (b.partner >= 0) b.row_blocks = (p.extent[b.partner] + b.rows - 1) / b.rows;
  for (int d = 0; d < inner; ++d)
    if (d != b.partner) b.outer *= p.extent[d];
  return b;
}

int run_block(const CollapsedCall& p, const SpaceBlocks& b, PwFn fn, int64_t index) {
  const int inner = p.dims - 1, out = p.operands;
  // Row blocks come first: tiled operands are nearly contiguous along the partner, so pages and prefetched lines are
  // reused.
  const int64_t row_block = index % b.row_blocks;
  index /= b.row_blocks;
  const int64_t col_block = index % b.col_blocks;
  index /= b.col_blocks;
  char* base[kMaxOperands + 1];
  for (int k = 0; k <= out; ++k) base[k] = p.data[k] + col_block * b.cols * p.stride[k][inner];
  for (int d = inner - 1; d >= 0; --d) {
    int64_t i;
    if (d == b.partner) {
      i = row_block * b.rows;
    } else {
      i = index % p.extent[d];
      index /= p.extent[d];
    }
    for (int k = 0; k <= out; ++k) base[k] += i * p.stride[k][d];
  }
  const int64_t cols = std::min(b.cols, p.extent[inner] - col_block * b.cols);
  const int64_t rows = b.partner < 0 ? 1 : std::min(b.rows, p.extent[b.partner] - row_block * b.rows);

  alignas(64) char tile[kMaxOperands + 1][kTile * 8];
  int64_t row_step[kMaxOperands + 1];
  uint32_t scalars = 0;
  char* at[kMaxOperands + 1];
  for (int k = 0; k <= out; ++k) {
    const int64_t row = b.partner < 0 ? 0 : p.stride[k][b.partner], col = p.stride[k][inner];
    const bool is_scalar = k < out && col == 0 && (!b.packed || row == 0);
    const bool dense = b.packed && col == p.size[k] && (row == cols * p.size[k] || rows == 1);
    at[k] = base[k];
    row_step[k] = row;
    if (is_scalar) {
      scalars |= 1u << k;
    } else if (b.packed ? !dense : b.tiled[k]) {
      at[k] = tile[k];
      row_step[k] = cols * p.size[k];
      if (k < out) copy_bytes_2d(base[k], row, col, tile[k], row_step[k], p.size[k], rows, cols, p.size[k]);
    }
  }
  int status = 0;
  if (b.packed) {
    status = fn(reinterpret_cast<const void* const*>(at), at[out], rows * cols, scalars);
  } else {
    char* row_at[kMaxOperands + 1];
    for (int64_t r = 0; r < rows; ++r) {
      for (int k = 0; k <= out; ++k) row_at[k] = at[k] + r * row_step[k];
      status |= fn(reinterpret_cast<const void* const*>(row_at), row_at[out], cols, scalars);
    }
  }
  if (at[out] != base[out]) {
    const int64_t row = b.partner < 0 ? 0 : p.stride[out][b.partner];
    copy_bytes_2d(tile[out], cols * p.size[out], p.size[out], base[out], row, p.stride[out][inner], rows, cols,
                  p.size[out]);
  }
  return status;
}

}  // namespace

void copy_2d(const void* src, int64_t src_row, int64_t src_col, void* dst, int64_t dst_row, int64_t dst_col,
             int64_t rows, int64_t cols, int64_t size) {
  copy_bytes_2d(static_cast<const char*>(src), src_row * size, src_col * size, static_cast<char*>(dst), dst_row * size,
                dst_col * size, rows, cols, size);
}

int strided_apply(PwFn fn, std::span<const StridedView> in, const StridedView& out, int64_t grain) {
  if (out.numel() == 0) return 0;
  const CollapsedCall p = collapse(in, out);
  const SpaceBlocks b = cut(p, grain);
  const int64_t blocks = b.outer * b.row_blocks * b.col_blocks;
  const int64_t per_task = std::max<int64_t>(1, grain / (b.rows * b.cols));
  std::atomic<int> status{0};
  parallel_chunks(blocks, per_task, [&](int64_t begin, int64_t end) {
    int s = 0;
    for (int64_t i = begin; i < end; ++i) s |= run_block(p, b, fn, i);
    if (s) status.store(s, std::memory_order_relaxed);
  });
  return status.load(std::memory_order_relaxed);
}

}  // namespace weft::kernels
