#include <algorithm>
#include <cstring>

#include "framework/base/thread_pool.h"
#include "ops/kernels/gemm.h"
#include "ops/kernels/gemm_plan.h"
#include "ops/kernels/gemm_tile.h"
#include "ops/kernels/kernels.h"
#include "ops/kernels/onednn_tile.h"

namespace weft::kernels {
namespace {

// Rows come in blocks of kRows; the last block of a group is padded with zeros to a multiple of kUnit, so that few
// different products are compiled however the rows fall.
constexpr int64_t kRows = 256, kUnit = 32;

int64_t padded(int64_t rows) { return (rows + kUnit - 1) / kUnit * kUnit; }

struct GroupedPlan {
  int64_t tile_m, tile_n, block_k;  // of one product; rows mode: tile_m rows; contraction: block_k rows
  int64_t slots, product_bytes, pad_a, pad_b, slot_bytes;

  GroupedPlan(GroupedMode mode, DType in, DType out, int64_t t, int64_t k, int64_t n) {
    const int64_t part_k = std::min(k, even_part(k, mode == GroupedMode::rows ? 512 : 256, 32));
    tile_n = std::min(n, even_part(n, 256, 64));
    tile_m = mode == GroupedMode::rows ? kRows : part_k;
    block_k = mode == GroupedMode::rows ? part_k : kRows;
    const double flops = 2.0 * static_cast<double>(t) * k * n;
    slots = std::max<int64_t>(1, std::min<int64_t>(max_threads(), static_cast<int64_t>(flops / 1e6) + 1));
    auto up = [](int64_t v) { return (v + 63) / 64 * 64; };
    product_bytes = up(Slot::bytes(tile_m, tile_n, block_k));
    // Room for the padded rows of a group's end: the operands' and the output's, or both operands'.
    pad_a = up(kRows * (mode == GroupedMode::rows ? k : tile_m) * itemsize(in));
    pad_b = up(kRows * tile_n * std::max(itemsize(in), itemsize(out)));
    slot_bytes = k == 0 || n == 0 || t == 0 ? 0 : product_bytes + pad_a + pad_b;
  }
};

struct Offsets {
  const StridedView& v;
  int64_t operator[](int64_t i) const {
    return v.dtype == kInt64 ? v.as<int64_t>()[i * v.strides[0]] : v.as<int32_t>()[i * v.strides[0]];
  }
};

void check_offsets(const Offsets& o, int64_t groups, int64_t t) {
  WEFT_CHECK_AS(kOutOfRange, o[0] >= 0, "grouped_matmul: offsets[0] is ", o[0], "; need at least 0");
  for (int64_t e = 0; e < groups; ++e)
    WEFT_CHECK_AS(kOutOfRange, o[e] <= o[e + 1], "grouped_matmul: offsets must not fall; offsets[", e, "] is ", o[e],
                  " and offsets[", e + 1, "] is ", o[e + 1]);
  WEFT_CHECK_AS(kOutOfRange, o[groups] <= t, "grouped_matmul: offsets[", groups, "] is ", o[groups], "; there are ", t,
                " rows");
}

// Rows first .. first + count of a [T, width] operand into dense zero-padded rows.
void copy_padded(const StridedView& v, int64_t first, int64_t count, int64_t rows, int64_t width, char* to) {
  const int64_t size = itemsize(v.dtype);
  cast_copy({static_cast<char*>(v.data) + first * v.strides[0] * size, v.dtype, {count, width}, v.strides},
            {to, v.dtype, {count, width}, {width, 1}});
  std::memset(to + count * width * size, 0, (rows - count) * width * size);
}

// A piece of work: rows of one group against one tile of columns, or one tile of one group's product.
struct Piece {
  int64_t group, first, count, column;
};

void run_rows(const GroupedPlan& p, const StridedView& x, const StridedView& w, const StridedView& y,
              const Piece& piece, char* memory) {
  const Slot slot(memory, p.tile_m, p.tile_n, p.block_k);
  char *pad_a = memory + p.product_bytes, *pad_c = pad_a + p.pad_a;
  const int64_t k = x.shape[1], n = w.shape[2], in = itemsize(x.dtype), out = itemsize(y.dtype);
  const int64_t cols = std::min(p.tile_n, n - piece.column), rows = padded(piece.count);
  const TileOperand b{
      static_cast<const char*>(w.data) + (piece.group * w.strides[0] + piece.column * w.strides[2]) * in, w.strides[1],
      w.strides[2]};
  char* c = static_cast<char*>(y.data) + (piece.first * n + piece.column) * out;
  if (rows == piece.count) {
    const TileOperand a{static_cast<const char*>(x.data) + piece.first * x.strides[0] * in, x.strides[0], x.strides[1]};
    return tile_product(a, b, x.dtype, rows, cols, k, p.block_k, c, y.dtype, n, slot);
  }
  copy_padded(x, piece.first, piece.count, rows, k, pad_a);
  tile_product({pad_a, k, 1}, b, x.dtype, rows, cols, k, p.block_k, pad_c, y.dtype, cols, slot);
  for (int64_t r = 0; r < piece.count; ++r) std::memcpy(c + r * n * out, pad_c + r * cols * out, cols * out);
}

}  // namespace

int64_t grouped_gemm_workspace(GroupedMode mode, DType in, DType out, int64_t groups, int64_t t, int64_t k, int64_t n) {
  const GroupedPlan p(mode, in, out, t, k, n);
  return p.slots * p.slot_bytes;
}

void grouped_gemm(GroupedMode mode, const StridedView& a, const StridedView& b, const StridedView& offsets,
                  const StridedView& out, void* workspace) {
  const bool by_rows = mode == GroupedMode::rows;
  WEFT_CHECK(offsets.shape.size() == 1 && offsets.shape[0] >= 1 && (offsets.dtype == kInt64 || offsets.dtype == kInt32),
             "grouped_matmul: offsets are ", offsets.dtype, offsets.shape,
             "; need i64 or i32 of one dim, groups + 1 long");
  const int64_t groups = offsets.shape[0] - 1;
  WEFT_CHECK(a.shape.size() == 2 && b.shape.size() == (by_rows ? 3 : 2) && out.shape.size() == (by_rows ? 2 : 3),
             "grouped_matmul: got shapes ", a.shape, ", ", b.shape, " and ", out.shape);
  const int64_t t = a.shape[0], k = a.shape[1], n = b.shape.back();
  WEFT_CHECK(by_rows ? b.shape == Shape({groups, k, n}) && out.shape == Shape({t, n})
                     : b.shape[0] == t && out.shape == Shape({groups, k, n}),
             "grouped_matmul: shapes do not fit: ", a.shape, " x ", b.shape, " -> ", out.shape, " with ", groups,
             " groups");
  WEFT_CHECK(a.dtype == b.dtype && is_floating(a.dtype) && (out.dtype == a.dtype || out.dtype == kFloat32),
             "grouped_matmul: dtypes do not fit: ", a.dtype, " x ", b.dtype, " -> ", out.dtype);
  WEFT_CHECK(out.contiguous(), "grouped_matmul: the output must be contiguous");
  const Offsets o{offsets};
  check_offsets(o, groups, t);
  if (out.numel() == 0) return;
  const int64_t in_size = itemsize(a.dtype), out_size = itemsize(out.dtype);
  if (k == 0) return fill(out, 0);

  if (a.dtype == kFloat64) {  // a product after another, each of them parallel
    if (by_rows) fill(out, 0);
    for (int64_t e = 0; e < groups; ++e) {
      const int64_t first = o[e], rows = o[e + 1] - first;
      char* pa = static_cast<char*>(a.data) + first * a.strides[0] * in_size;
      if (by_rows) {
        gemm({pa, a.dtype, {rows, k}, {a.strides[0], a.strides[1]}},
             {static_cast<char*>(b.data) + e * b.strides[0] * in_size, b.dtype, {k, n}, {b.strides[1], b.strides[2]}},
             {static_cast<char*>(out.data) + first * n * out_size, out.dtype, {rows, n}, {n, 1}}, nullptr);
      } else {
        gemm({pa, a.dtype, {k, rows}, {a.strides[1], a.strides[0]}},
             {static_cast<char*>(b.data) + first * b.strides[0] * in_size,
              b.dtype,
              {rows, n},
              {b.strides[0], b.strides[1]}},
             {static_cast<char*>(out.data) + e * k * n * out_size, out.dtype, {k, n}, {n, 1}}, nullptr);
      }
    }
    return;
  }

  const GroupedPlan p(mode, a.dtype, out.dtype, t, k, n);
  WEFT_CHECK(workspace || p.slot_bytes == 0, "grouped_matmul: needs ", p.slots * p.slot_bytes,
             " bytes of workspace; got none");
  if (by_rows) {
    auto zero = [&](int64_t begin, int64_t end) {
      std::memset(static_cast<char*>(out.data) + begin * n * out_size, 0, (end - begin) * n * out_size);
    };
    zero(0, groups ? o[0] : 0);
    zero(groups ? o[groups] : 0, t);
    // The pieces in order: groups, columns, row blocks. Slots take equal shares of rows times columns, cut at pieces.
    const int64_t columns = (n + p.tile_n - 1) / p.tile_n;
    int64_t pieces = 0;
    for (int64_t e = 0; e < groups; ++e) pieces += (o[e + 1] - o[e] + kRows - 1) / kRows * columns;
    parallel_for(p.slots, [&](int64_t slot) {
      const SingleThreadedOpenMp single;
      const int64_t begin = pieces * slot / p.slots, end = pieces * (slot + 1) / p.slots;
      int64_t index = 0;
      for (int64_t e = 0; e < groups; ++e) {
        const int64_t blocks = (o[e + 1] - o[e] + kRows - 1) / kRows;
        for (int64_t i = std::max(begin - index, int64_t{0}); i < std::min(blocks * columns, end - index); ++i) {
          const int64_t first = o[e] + i % blocks * kRows;
          run_rows(p, a, b, out, {e, first, std::min(kRows, o[e + 1] - first), i / blocks * p.tile_n},
                   static_cast<char*>(workspace) + slot * p.slot_bytes);
        }
        index += blocks * columns;
      }
    });
    return;
  }

  const int64_t tiles_m = (k + p.tile_m - 1) / p.tile_m, tiles_n = (n + p.tile_n - 1) / p.tile_n;
  const int64_t tiles = groups * tiles_m * tiles_n;
  const bool native = tile_native(a.dtype);
  const DType used = native ? a.dtype : kFloat32;
  parallel_for(p.slots, [&](int64_t task) {
    const SingleThreadedOpenMp single;
    char* memory = static_cast<char*>(workspace) + task * p.slot_bytes;
    const Slot slot(memory, p.tile_m, p.tile_n, p.block_k);
    for (int64_t i = tiles * task / p.slots; i < tiles * (task + 1) / p.slots; ++i) {
      const int64_t e = i / (tiles_m * tiles_n), row = i / tiles_n % tiles_m * p.tile_m, col = i % tiles_n * p.tile_n;
      const int64_t m = std::min(p.tile_m, k - row), cols = std::min(p.tile_n, n - col);
      char* c = static_cast<char*>(out.data) + ((e * k + row) * n + col) * out_size;
      const StridedView target{c, out.dtype, {m, cols}, {n, 1}};
      if (o[e] == o[e + 1]) {
        fill(target, 0);
        continue;
      }
      const bool through_acc = out.dtype != kFloat32;
      float* acc = through_acc ? slot.acc : reinterpret_cast<float*>(c);
      const int64_t ld = through_acc ? cols : n;
      for (int64_t first = o[e]; first < o[e + 1]; first += kRows) {
        const int64_t count = std::min(kRows, o[e + 1] - first), rows = padded(count);
        TileShape s{used,         kFloat32,     m,  cols,        rows, a.strides[1], a.strides[0],
                    b.strides[0], b.strides[1], ld, first > o[e]};
        const char* pa = static_cast<const char*>(a.data) + (first * a.strides[0] + row * a.strides[1]) * in_size;
        const char* pb = static_cast<const char*>(b.data) + (first * b.strides[0] + col * b.strides[1]) * in_size;
        if (rows != count || !native || !tile_readable(m, rows, s.a_row, s.a_col)) {
          cast_copy({const_cast<char*>(pa), a.dtype, {count, m}, {a.strides[0], a.strides[1]}},
                    {slot.a, used, {count, m}, {m, 1}});
          std::memset(slot.a + count * m * itemsize(used), 0, (rows - count) * m * itemsize(used));
          pa = slot.a, s.a_row = 1, s.a_col = m;
        }
        if (rows != count || !native || !tile_readable(rows, cols, s.b_row, s.b_col)) {
          cast_copy({const_cast<char*>(pb), b.dtype, {count, cols}, {b.strides[0], b.strides[1]}},
                    {slot.b, used, {count, cols}, {cols, 1}});
          std::memset(slot.b + count * cols * itemsize(used), 0, (rows - count) * cols * itemsize(used));
          pb = slot.b, s.b_row = cols, s.b_col = 1;
        }
        tile_matmul(s, pa, pb, acc, slot.scratch, slot.scratch_bytes);
      }
      if (through_acc) cast_copy({slot.acc, kFloat32, {m, cols}, {cols, 1}}, target);
    }
  });
}

}  // namespace weft::kernels
