#include "ops/kernels/gemm.h"

#include <algorithm>
#include <cstring>
#include <eigen3/Eigen/Core>

#include "framework/base/cpu.h"
#include "framework/base/thread_pool.h"
#include "ops/kernels/gemm_plan.h"
#include "ops/kernels/gemm_tile.h"
#include "ops/kernels/kernels.h"
#include "ops/kernels/onednn_tile.h"
#include "ops/kernels/tables.h"

namespace weft::kernels {

int64_t even_part(int64_t n, int64_t most, int64_t unit) {
  if (n <= 0) return unit;
  const int64_t parts = (n + most - 1) / most, part = (n + parts - 1) / parts;
  return (part + unit - 1) / unit * unit;
}

int64_t Slot::bytes(int64_t tile_m, int64_t tile_n, int64_t block_k) {
  return tile_scratch(tile_m, tile_n, block_k) + tile_m * tile_n * 4 + (tile_m + tile_n) * block_k * 4 + 256;
}

Slot::Slot(char* base, int64_t tile_m, int64_t tile_n, int64_t block_k) {
  auto up = [](int64_t v) { return (v + 63) / 64 * 64; };
  scratch = base;
  scratch_bytes = tile_scratch(tile_m, tile_n, block_k);
  acc = reinterpret_cast<float*>(base + up(scratch_bytes));
  a = reinterpret_cast<char*>(acc) + up(tile_m * tile_n * 4);
  b = a + up(tile_m * block_k * 4);
}

GemmPlan::GemmPlan(DType in, DType out, int64_t batch_, int64_t m_, int64_t n_, int64_t k_)
    : batch(batch_), m(m_), n(n_), k(k_) {
  tiny = (in != kFloat64 && m * n * k <= 1024) || !is_floating(in);
  // 256 x 256 with K in blocks of 512 keeps a tile's operands in a 1 MB L2. Fewer than 8 tiles are cut smaller so that
  // cores share the work, but not below 64 or where a tile would be only microseconds.
  int64_t most_m = 256, most_n = 256;
  block_k = even_part(k, 512, 32);
  auto count = [&] { return batch * ((m + most_m - 1) / most_m) * ((n + most_n - 1) / most_n); };
  while (count() < 8 && std::max(std::min(m, most_m), std::min(n, most_n)) > 64 &&
         std::min(m, most_m) * std::min(n, most_n) * k > int64_t{1} << 21) {
    (std::min(m, most_m) >= std::min(n, most_n) ? most_m : most_n) /= 2;
  }
  tile_m = std::min(m, even_part(m, most_m, 16));
  tile_n = std::min(n, even_part(n, most_n, 64));
  block_k = std::min(k, block_k);
  tiles_m = tile_m ? (m + tile_m - 1) / tile_m : 0;
  tiles_n = tile_n ? (n + tile_n - 1) / tile_n : 0;
  blocks_k = block_k ? (k + block_k - 1) / block_k : 0;
  tiles = batch * tiles_m * tiles_n;
  // A task of less than about 20 microseconds is not worth a thread.
  const double flops = 2.0 * static_cast<double>(batch) * m * n * k, per_task = in == kFloat64 ? 1e5 : 1e6;
  slots = std::max<int64_t>(1, std::min<int64_t>({tiles, max_threads(), static_cast<int64_t>(flops / per_task) + 1}));
  slot_bytes =
      tiny || in == kFloat64 || tiles == 0 || k == 0 ? 0 : (Slot::bytes(tile_m, tile_n, block_k) + 63) / 64 * 64;
}

namespace {

// A view's batch dims are numbered as one; offsets in bytes.
int64_t batch_offset(const StridedView& v, int64_t index) {
  int64_t offset = 0;
  for (int d = v.shape.size() - 3; d >= 0; --d) {
    offset += index % v.shape[d] * v.strides[d];
    index /= v.shape[d];
  }
  return offset * itemsize(v.dtype);
}

template <class T, class Acc, class O>
void plain(const StridedView& a, const StridedView& b, const StridedView& c, const GemmPlan& p) {
  const int r = a.shape.size();
  const int64_t am = a.strides[r - 2], ak = a.strides[r - 1], bk = b.strides[r - 2], bn = b.strides[r - 1];
  const int64_t rows = std::max<int64_t>(1, (1 << 16) / std::max<int64_t>(1, p.n * p.k));
  parallel_chunks(p.batch * p.m, rows, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const T* x =
          reinterpret_cast<const T*>(static_cast<const char*>(a.data) + batch_offset(a, row / p.m)) + row % p.m * am;
      const T* y = reinterpret_cast<const T*>(static_cast<const char*>(b.data) + batch_offset(b, row / p.m));
      for (int64_t j = 0; j < p.n; ++j) {
        Acc acc = 0;
        for (int64_t i = 0; i < p.k; ++i) acc += static_cast<Acc>(x[i * ak]) * static_cast<Acc>(y[i * bk + j * bn]);
        c.as<O>()[row * p.n + j] = static_cast<O>(acc);
      }
    }
  });
}

void tiny_gemm(const StridedView& a, const StridedView& b, const StridedView& c, const GemmPlan& p) {
  const bool same = a.dtype == c.dtype;
  switch (a.dtype) {
    case kFloat32:
      return plain<float, float, float>(a, b, c, p);
    case kBFloat16:
      return same ? plain<bfloat16, float, bfloat16>(a, b, c, p) : plain<bfloat16, float, float>(a, b, c, p);
    case kFloat16:
      return same ? plain<float16, float, float16>(a, b, c, p) : plain<float16, float, float>(a, b, c, p);
    // Unsigned, so that overflow wraps.
    case kInt64:
      return plain<uint64_t, uint64_t, uint64_t>(a, b, c, p);
    case kInt32:
      return same ? plain<int32_t, uint64_t, int32_t>(a, b, c, p) : plain<int32_t, uint64_t, uint64_t>(a, b, c, p);
    case kUInt8:
      return same ? plain<uint8_t, uint64_t, uint8_t>(a, b, c, p) : plain<uint8_t, uint64_t, uint64_t>(a, b, c, p);
    default:
      internal::fail(Code::kInvalidArgument, cat("matmul: does not take dtype ", a.dtype));
  }
}

void gemm_f64(const StridedView& a, const StridedView& b, const StridedView& c, const GemmPlan& p) {
  using Strides = Eigen::Stride<Eigen::Dynamic, Eigen::Dynamic>;
  using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::ColMajor>;
  using Row = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  const int r = a.shape.size();
  const int64_t am = a.strides[r - 2], ak = a.strides[r - 1], bk = b.strides[r - 2], bn = b.strides[r - 1];
  parallel_for(p.slots, [&](int64_t slot) {
    for (int64_t t = p.tiles * slot / p.slots; t < p.tiles * (slot + 1) / p.slots; ++t) {
      const int64_t tm = t % p.tiles_m, tn = t / p.tiles_m % p.tiles_n, batch = t / p.tiles_m / p.tiles_n;
      const int64_t i = tm * p.tile_m, j = tn * p.tile_n, m = std::min(p.tile_m, p.m - i),
                    n = std::min(p.tile_n, p.n - j);
      const double* x =
          reinterpret_cast<const double*>(static_cast<const char*>(a.data) + batch_offset(a, batch)) + i * am;
      const double* y =
          reinterpret_cast<const double*>(static_cast<const char*>(b.data) + batch_offset(b, batch)) + j * bn;
      // Copied to column major first: Eigen has no fast path for two free strides.
      const Matrix mx = Eigen::Map<const Matrix, 0, Strides>(x, m, p.k, Strides(ak, am));
      const Matrix my = Eigen::Map<const Matrix, 0, Strides>(y, p.k, n, Strides(bn, bk));
      Eigen::Map<Row, 0, Eigen::OuterStride<>>(c.as<double>() + (batch * p.m + i) * p.n + j, m, n,
                                               Eigen::OuterStride<>(p.n))
          .noalias() = mx * my;
    }
  });
}

// One to four rows times a matrix, or a matrix times one column: bound by memory, so read once and never copied. False
// if the strides do not allow it.
bool few_rows(const StridedView& a, const StridedView& b, const StridedView& c, const GemmPlan& p) {
  if (a.dtype == kFloat64 || a.dtype > kFloat16 || (p.m > 4 && p.n != 1)) return false;
  const int r = a.shape.size();
  const bool column = p.m > 4;  // then the roles of a and b are swapped
  const StridedView &x = column ? b : a, &w = column ? a : b;
  const int64_t rows = column ? 1 : p.m, cols = column ? p.m : p.n;
  const int64_t x_row = column ? 0 : x.strides[r - 2], x_k = x.strides[column ? r - 2 : r - 1];
  const int64_t w_k = w.strides[column ? r - 1 : r - 2], w_col = w.strides[column ? r - 2 : r - 1];
  if (x_k != 1 || (w_k != 1 && w_col != 1)) return false;
  static const auto get = WEFT_SELECT(gemv_fn);
  const GemvFn fn = get(w_k != 1, a.dtype == kFloat32 ? 0 : a.dtype == kBFloat16 ? 1 : 2, static_cast<int>(rows));
  const int64_t w_stride = w_k == 1 ? w_col : w_k, size = itemsize(a.dtype), out_size = itemsize(c.dtype);
  constexpr int64_t kMost = 512;
  const int64_t chunk = std::clamp<int64_t>((1 << 16) / p.k / 64 * 64, 64, kMost), chunks = (cols + chunk - 1) / chunk;
  const int64_t together = std::max<int64_t>(1, (1 << 16) / (p.k * chunk));
  parallel_chunks(p.batch * chunks, together, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const int64_t batch = t / chunks, j = t % chunks * chunk, n = std::min(chunk, cols - j);
      const char* px = static_cast<const char*>(x.data) + batch_offset(x, batch);
      const char* pw = static_cast<const char*>(w.data) + batch_offset(w, batch) + j * w_col * size;
      char* pc = static_cast<char*>(c.data) + (batch * p.m * p.n + j) * out_size;
      if (c.dtype == kFloat32) {
        fn(px, x_row, pw, w_stride, p.k, n, reinterpret_cast<float*>(pc), p.n);
      } else {
        float sums[4 * kMost];
        fn(px, x_row, pw, w_stride, p.k, n, sums, n);
        cast_copy({sums, kFloat32, {rows, n}, {n, 1}}, {pc, c.dtype, {rows, n}, {p.n, 1}});
      }
    }
  });
  return true;
}

void check_gemm(const StridedView& a, const StridedView& b, const StridedView& c) {
  const int r = a.shape.size();
  WEFT_CHECK(r >= 2 && b.shape.size() == r && c.shape.size() == r, "matmul: got shapes ", a.shape, ", ", b.shape,
             " and ", c.shape, "; need as many dims each, at least 2");
  bool fits = a.shape[r - 1] == b.shape[r - 2] && c.shape[r - 2] == a.shape[r - 2] && c.shape[r - 1] == b.shape[r - 1];
  for (int d = 0; d < r - 2; ++d) fits = fits && a.shape[d] == c.shape[d] && b.shape[d] == c.shape[d];
  WEFT_CHECK(fits, "matmul: shapes do not fit: ", a.shape, " x ", b.shape, " -> ", c.shape);
  const bool floating = is_floating(a.dtype);
  WEFT_CHECK(a.dtype == b.dtype && (c.dtype == a.dtype || (floating && a.dtype != kFloat64 && c.dtype == kFloat32) ||
                                    (!floating && c.dtype == kInt64)),
             "matmul: dtypes do not fit: ", a.dtype, " x ", b.dtype, " -> ", c.dtype);
  WEFT_CHECK(c.contiguous(), "matmul: the output must be contiguous");
}

}  // namespace

void tile_product(const TileOperand& a, const TileOperand& b, DType type, int64_t m, int64_t n, int64_t k,
                  int64_t block_k, void* c, DType out, int64_t ldc, const Slot& slot) {
  const bool native = tile_native(type);
  const DType used = native ? type : kFloat32;
  const int64_t size = itemsize(type);
  const bool several = k > block_k;
  // Sums over several K blocks stay in f32 and are rounded once.
  const bool through_acc = out != kFloat32 && (several || out != used);
  void* target = through_acc ? slot.acc : c;
  const DType target_type = through_acc ? kFloat32 : out;
  const int64_t target_ld = through_acc ? n : ldc;
  for (int64_t first = 0; first < k; first += block_k) {
    const int64_t kb = std::min(block_k, k - first);
    TileShape s{used, target_type, m, n, kb, a.row, a.col, b.row, b.col, target_ld, first > 0};
    // A stride along an extent of one is free: name the one that makes a plain matrix.
    if (m == 1) s.a_row = s.a_col == 1 ? kb : 1;
    if (n == 1) s.b_col = s.b_row == 1 ? kb : 1;
    const char* pa = a.data + first * a.col * size;
    const char* pb = b.data + first * b.row * size;
    if (!native || !tile_readable(m, kb, s.a_row, s.a_col)) {
      s.a_row = kb, s.a_col = 1;
      cast_copy({const_cast<char*>(pa), type, {m, kb}, {a.row, a.col}}, {slot.a, used, {m, kb}, {kb, 1}});
      pa = slot.a;
    }
    if (!native || !tile_readable(kb, n, s.b_row, s.b_col)) {
      s.b_row = n, s.b_col = 1;
      cast_copy({const_cast<char*>(pb), type, {kb, n}, {b.row, b.col}}, {slot.b, used, {kb, n}, {n, 1}});
      pb = slot.b;
    }
    tile_matmul(s, pa, pb, target, slot.scratch, slot.scratch_bytes);
  }
  if (through_acc) cast_copy({slot.acc, kFloat32, {m, n}, {n, 1}}, {c, out, {m, n}, {ldc, 1}});
}

void gemm(const StridedView& a, const StridedView& b, const StridedView& c, void* workspace) {
  check_gemm(a, b, c);
  const int r = a.shape.size();
  int64_t batch = 1;
  for (int d = 0; d < r - 2; ++d) batch *= c.shape[d];
  const GemmPlan p(a.dtype, c.dtype, batch, c.shape[r - 2], c.shape[r - 1], a.shape[r - 1]);
  if (p.tiles == 0) return;
  if (p.k == 0) return fill(c, 0);
  if (p.tiny) return tiny_gemm(a, b, c, p);
  if (few_rows(a, b, c, p)) return;
  if (a.dtype == kFloat64) return gemm_f64(a, b, c, p);
  WEFT_CHECK(workspace || p.slot_bytes == 0, "matmul: needs ", p.slots * p.slot_bytes, " bytes of workspace; got none");
  const int64_t size = itemsize(a.dtype), out_size = itemsize(c.dtype);
  parallel_for(p.slots, [&](int64_t task) {
    const SingleThreadedOpenMp single;
    const Slot slot(static_cast<char*>(workspace) + task * p.slot_bytes, p.tile_m, p.tile_n, p.block_k);
    for (int64_t t = p.tiles * task / p.slots; t < p.tiles * (task + 1) / p.slots; ++t) {
      const int64_t tm = t % p.tiles_m, tn = t / p.tiles_m % p.tiles_n, at = t / p.tiles_m / p.tiles_n;
      const int64_t i = tm * p.tile_m, j = tn * p.tile_n;
      const TileOperand ta{static_cast<const char*>(a.data) + batch_offset(a, at) + i * a.strides[r - 2] * size,
                           a.strides[r - 2], a.strides[r - 1]};
      const TileOperand tb{static_cast<const char*>(b.data) + batch_offset(b, at) + j * b.strides[r - 1] * size,
                           b.strides[r - 2], b.strides[r - 1]};
      tile_product(ta, tb, a.dtype, std::min(p.tile_m, p.m - i), std::min(p.tile_n, p.n - j), p.k, p.block_k,
                   static_cast<char*>(c.data) + ((at * p.m + i) * p.n + j) * out_size, c.dtype, p.n, slot);
    }
  });
}

int64_t gemm_workspace(DType in, DType out, int64_t batch, int64_t m, int64_t n, int64_t k) {
  const GemmPlan p(in, out, batch, m, n, k);
  return p.slots * p.slot_bytes;
}

}  // namespace weft::kernels
