#include "ops/kernels/products/gemm_plan.h"

#include "framework/base/cpu.h"
#include "framework/base/error.h"

#define WEFT_SELECT_GEMM(name) \
  (selected_isa() == Isa::avx512 ? avx512::name() : selected_isa() == Isa::avx2 ? avx2::name() : baseline::name())

namespace weft::kernels {
namespace {

constexpr int64_t kMostTile = 256, kLeastTile = 64, kFillBytes = 64 << 10, kStripBytes = 4 << 20;
// The k of one GemmFill of a, and the columns of one GemmFill of b.
constexpr int64_t kFillK = 1024, kFillColumns = 256;

// Bytes of sums that an epilogue gets at a time.
constexpr int64_t kEpilogueBytes = 64 << 10;

// For a plan by blocks: the maximum rows and columns of a tile, and the bytes that it keeps in the second-level cache.
constexpr int64_t kMostBlockTile = 512, kBlockBytes = 1400 << 10;

int64_t line64(int64_t bytes) { return round_up(bytes, 64); }

int64_t fill_bytes(const GemmTiling& p) {
  const GemmKernel& g = *p.kernel;
  const int64_t lines = std::max(round_up(p.tile_m, g.mr), std::min(round_up(p.n, g.nr), kFillColumns));
  return line64(std::min(kFillBytes, lines * p.padded_k() * 4));
}

}  // namespace

const GemmKernel& gemm_kernel(PanelType type) {
  static const bool amx = selected_isa() == Isa::avx512 && cpu_features().amx_bf16 && cpu_features().avx512_bf16;
  static const GemmKernel& wide = WEFT_SELECT_GEMM(f32_gemm_kernel);
  return type == PanelType::bf16 && amx ? amx::bf16_gemm_kernel() : wide;
}

PanelType panel_type(DType type) {
  WEFT_BUG_IF(type != kFloat32 && type != kBFloat16 && type != kFloat16, "gemm: no panels of ", type);
  return type == kFloat32 ? PanelType::f32 : type == kBFloat16 ? PanelType::bf16 : PanelType::f16;
}

int64_t even_part(int64_t n, int64_t most, int64_t unit) {
  if (n <= 0) return unit;
  const int64_t parts = (n + most - 1) / most;
  return round_up((n + parts - 1) / parts, unit);
}

GemmTiling::GemmTiling(const GemmKernel& g, int64_t matrices, int64_t m_, int64_t n_, int64_t k_, int64_t wanted)
    : kernel(&g), m(m_), n(n_), k(k_) {
  const int64_t unit_n = std::max(g.nr, 32);
  int64_t most_m = kMostTile / g.mr * g.mr, most_n = kMostTile;
  auto count = [&] { return matrices * ((m + most_m - 1) / most_m) * ((n + most_n - 1) / most_n); };
  // A tile of 4 (f32) or 16 (bf16 on AMX) million operations takes tens of microseconds.
  const int64_t least = (g.size == 2 ? int64_t{8} : int64_t{2}) << 20;
  while (count() < wanted && std::max(std::min(m, most_m), std::min(n, most_n)) > kLeastTile &&
         std::min(m, most_m) * std::min(n, most_n) * k > least) {
    if (std::min(m, most_m) >= std::min(n, most_n)) {
      most_m = round_up(std::min(m, most_m) / 2, g.mr);
    } else {
      most_n = round_up(std::min(n, most_n) / 2, unit_n);
    }
  }
  while (most_m > kLeastTile && most_m * padded_k() * g.size > kStripBytes) most_m = round_up(most_m / 2, g.mr);
  tile_m = std::min(m, even_part(m, most_m, g.mr));
  tile_n = std::min(n, even_part(n, most_n, unit_n));
  tiles_m = tile_m ? (m + tile_m - 1) / tile_m : 0;
  tiles_n = tile_n ? (n + tile_n - 1) / tile_n : 0;
}

void GemmTiling::widen() {
  const int64_t rows = round_up((tile_m + tiles_n - 1) / tiles_n, kernel->mr);
  tile_m = std::min(m, even_part(m, rows, kernel->mr));
  tile_n = n;
  tiles_m = tile_m ? (m + tile_m - 1) / tile_m : 0;
  tiles_n = n ? 1 : 0;
}

GemmTiling GemmTiling::by_blocks(const GemmKernel& g, int64_t matrices, int64_t m, int64_t n, int64_t k, int64_t tasks,
                                 GemmFilled filled) {
  GemmTiling best(g, matrices, m, n, k, 1);
  best.blocks = true;
  const int64_t depth = best.a_depth(), unit_n = std::max(g.nr, 32);
  // The number of sums that take as long as packing one element.
  const int64_t packing = g.size == 2 ? 90 : 20, packing_a = packing * (1 + filled.a),
                packing_b = packing * (1 + filled.b);
  int64_t least = 0;
  const int64_t first_m = (m + kMostBlockTile - 1) / kMostBlockTile,
                first_n = (n + kMostBlockTile - 1) / kMostBlockTile;
  for (int64_t parts_m = first_m; parts_m <= (m + g.mr - 1) / g.mr; ++parts_m) {
    const int64_t rows = std::min(m, round_up((m + parts_m - 1) / parts_m, g.mr)), tiles_m = (m + rows - 1) / rows;
    if (parts_m > first_m + 4 && matrices * tiles_m * first_n > 4 * tasks) break;
    for (int64_t parts_n = first_n; parts_n <= (n + unit_n - 1) / unit_n; ++parts_n) {
      const int64_t cols = std::min(n, round_up((n + parts_n - 1) / parts_n, unit_n)), tiles_n = (n + cols - 1) / cols;
      if (parts_n > first_n + 4 && matrices * tiles_m * tiles_n > 4 * tasks) break;
      const int64_t wide_m = round_up(rows, g.mr), wide_n = round_up(cols, g.nr);
      if (rows > kMostBlockTile || cols > kMostBlockTile ||
          (wide_m + wide_n) * depth * g.size + wide_m * wide_n * 4 > kBlockBytes)
        continue;
      const int64_t rounds = (matrices * tiles_m * tiles_n + tasks - 1) / tasks;
      const int64_t cost = rounds * (rows * cols + rows * packing_a + cols * packing_b);
      if (least > 0 && cost >= least) continue;
      least = cost;
      best.tile_m = rows, best.tile_n = cols, best.tiles_m = tiles_m, best.tiles_n = tiles_n;
    }
  }
  return best;
}

int64_t GemmScratch::bytes(const GemmTiling& p, int64_t b_bytes, bool fills) {
  const int64_t rows = round_up(p.tile_m, p.kernel->mr);
  return line64(rows / p.kernel->mr * p.a_panel()) + line64(b_bytes) + line64(rows * p.tile_ld() * 4) +
         (fills ? fill_bytes(p) : 0);
}

GemmScratch::GemmScratch(char* base, const GemmTiling& p, int64_t b_bytes) {
  const int64_t rows = round_up(p.tile_m, p.kernel->mr);
  a = base;
  b = a + line64(rows / p.kernel->mr * p.a_panel());
  tile = reinterpret_cast<float*>(b + line64(b_bytes));
  fill = reinterpret_cast<char*>(tile) + line64(rows * p.tile_ld() * 4);
}

void pack_panels(const GemmKernel& g, bool b_side, const PanelSource& s, int64_t line, int64_t lines, int64_t first,
                 int64_t k, char* to, int64_t panel_bytes, char* fill_memory) {
  const int64_t unit = b_side ? g.nr : g.mr, size = itemsize(s.type);
  const auto pack = b_side ? g.pack_b : g.pack_a;
  const PanelType type = panel_type(s.type);
  auto at = [&](int64_t l, int64_t i) { return to + (l - line) / unit * panel_bytes + i * unit * g.size; };
  if (!s.fill) {
    const char* from = static_cast<const char*>(s.data) + (line * s.line_stride + first * s.k_stride) * size;
    return pack({from, type, s.line_stride, s.k_stride, lines, k, at(line, first), panel_bytes});
  }
  // Pieces that fit fill_memory: long rows of the operand.
  int64_t step_l, step_k;
  if (b_side) {
    step_l = std::min(round_up(lines, unit), kFillColumns);
    step_k = std::max<int64_t>(kFillBytes / (step_l * size) / g.kr, 1) * g.kr;
  } else {
    step_k = std::min(round_up(k, g.kr), kFillK);
    step_l = std::max<int64_t>(kFillBytes / (step_k * size) / unit, 1) * unit;
  }
  for (int64_t l = line; l < line + lines; l += step_l)
    for (int64_t i = first; i < first + k; i += step_k) {
      const int64_t nl = std::min(step_l, line + lines - l), nk = std::min(step_k, first + k - i);
      const bool lines_adjoin = b_side != s.fill->transposed;
      const int64_t ld = lines_adjoin ? nl : nk;
      if (b_side) {
        s.fill->run(s.fill->context, s.batch, i, l, nk, nl, fill_memory, ld);
      } else {
        s.fill->run(s.fill->context, s.batch, l, i, nl, nk, fill_memory, ld);
      }
      pack({fill_memory, type, lines_adjoin ? 1 : ld, lines_adjoin ? ld : 1, nl, nk, at(l, i), panel_bytes});
    }
}

namespace {

// The memory used after a block of sums: the operands of the next block, if they are packed then, or the memory that
// the epilogue reads and writes.
class Touches {
 public:
  Touches(const TileRun& t, int64_t next, GemmBlock& block) {
    if (next < t.k) {
      const int64_t k = std::min(t.plan->block_k(), t.k - next);
      if (!t.a) source(*t.a_source, t.a_at, t.rows, next, k);
      if (!t.b) source(*t.b_source, t.b_at, t.cols, next, k);
    } else if (t.epilogue) {
      for (int i = 0; i < std::min(t.epilogue->num_touches, kMost); ++i) {
        const GemmEpilogue::Touch& x = t.epilogue->touches[i];
        all_[count_++] = {static_cast<const char*>(x.data) + (t.batch * t.plan->m + t.row) * x.line + t.col * x.size,
                          x.line, t.cols * x.size, t.rows};
      }
    }
    block.touches = all_;
    block.num_touches = count_;
  }
  Touches(const Touches&) = delete;

 private:
  static constexpr int kMost = 8;

  void source(const PanelSource& s, int64_t line, int64_t lines, int64_t first, int64_t k) {
    if (s.fill || (s.line_stride != 1 && s.k_stride != 1)) return;
    const int64_t size = itemsize(s.type);
    const bool rows = s.k_stride == 1;  // lines are contiguous along k
    all_[count_++] = {static_cast<const char*>(s.data) + (line * s.line_stride + first * s.k_stride) * size,
                      (rows ? s.line_stride : s.k_stride) * size, (rows ? k : lines) * size, rows ? lines : k};
  }

  GemmTouch all_[kMost];
  int count_ = 0;
};

void run_whole(const TileRun& t, const GemmScratch& slot) {
  const GemmKernel& g = *t.plan->kernel;
  const int64_t ld = t.plan->tile_ld();
  GemmBlock block{t.a,     t.b, t.a_panel, t.b_panel, t.a_line,       t.rows, t.cols, 0,
                  nullptr, ld,  nullptr,   0,         PanelType::f32, false,  false};
  const int64_t most_k = t.plan->block_k(), depth = std::min(most_k, t.plan->padded_k());
  if (!t.a) block.a_stride = depth * g.mr * g.size;
  if (!t.b) block.b_stride = depth * g.nr * g.size;
  if (t.k == 0) std::fill_n(slot.tile, t.rows * ld, 0.0f);
  if (t.add)
    for (int64_t i = 0; i < t.rows; ++i)
      std::copy_n(static_cast<const float*>(t.c) + i * t.ldc, t.cols, slot.tile + i * ld);
  for (int64_t first = 0; first < t.k; first += most_k) {
    block.k = std::min(most_k, t.k - first);
    if (t.a) {
      block.a = t.a + first * (t.a_line ? 1 : g.mr) * g.size;
    } else {
      // The block's panels start at slot.a, whatever its first k.
      pack_panels(g, false, *t.a_source, t.a_at, t.rows, first, block.k, slot.a - first * g.mr * g.size, block.a_stride,
                  slot.fill);
      block.a = slot.a;
    }
    if (t.b) {
      block.b = t.b + first * g.nr * g.size;
    } else {
      pack_panels(g, true, *t.b_source, t.b_at, t.cols, first, block.k, slot.b - first * g.nr * g.size, block.b_stride,
                  slot.fill);
      block.b = slot.b;
    }
    block.from = first || t.add ? slot.tile : nullptr;
    if (first + most_k < t.k || t.epilogue) {
      block.to = slot.tile, block.to_ld = ld, block.to_type = PanelType::f32, block.to_whole = true;
    } else {
      block.to = t.c, block.to_ld = t.ldc, block.to_type = panel_type(t.out), block.to_whole = false;
      block.stream =
          t.large && (reinterpret_cast<uintptr_t>(t.c) | static_cast<uintptr_t>(t.ldc * itemsize(t.out))) % 64 == 0;
    }
    const Touches touches(t, first + most_k, block);
    g.run(block);
  }
  if (t.epilogue) t.epilogue->run(t.epilogue->context, {t.batch, t.row, t.col, t.rows, t.cols, slot.tile, ld});
}

}  // namespace

void run_tile(const TileRun& t, const GemmScratch& slot) {
  const GemmKernel& g = *t.plan->kernel;
  if (!t.epilogue || !t.a || !t.b) return run_whole(t, slot);
  // An epilogue gets some rows at a time, so that sums stay in the cache.
  const int64_t strip = std::max<int64_t>(1, kEpilogueBytes / (t.plan->tile_ld() * 4 * g.mr)) * g.mr;
  for (int64_t r = 0; r < t.rows; r += strip) {
    TileRun part = t;
    part.rows = std::min(strip, t.rows - r);
    part.row += r;
    part.a += t.a_line ? r * t.a_line : r / g.mr * t.a_panel;
    run_whole(part, slot);
  }
}

}  // namespace weft::kernels
