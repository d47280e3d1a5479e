#include "ops/kernels/products/gemm.h"

#include <algorithm>
#include <eigen3/Eigen/Core>

#include "framework/base/cpu.h"
#include "framework/base/thread_pool.h"
#include "ops/kernels/kernels.h"
#include "ops/kernels/products/gemm_plan.h"
#include "ops/kernels/tables.h"

namespace weft::kernels {
namespace {

// The sizes and strides of a product; offsets of batch entries are in bytes.
struct ProductLayout {
  int64_t batch = 1, m, n, k;
  int64_t am, ak, bk, bn, cm;

  ProductLayout(const StridedView& a, const StridedView& b, const StridedView& c) {
    const int r = a.shape.size();
    for (int d = 0; d < r - 2; ++d) batch *= c.shape[d];
    m = c.shape[r - 2], n = c.shape[r - 1], k = a.shape[r - 1];
    am = a.strides[r - 2], ak = a.strides[r - 1], bk = b.strides[r - 2], bn = b.strides[r - 1], cm = c.strides[r - 2];
  }
};

char* at_batch(const StridedView& v, int64_t index) {
  int64_t offset = 0;
  for (int d = v.shape.size() - 3; d >= 0; --d) {
    offset += index % v.shape[d] * v.strides[d];
    index /= v.shape[d];
  }
  return static_cast<char*>(v.data) + offset * itemsize(v.dtype);
}

// A task of less than about 5 (f32) microseconds is not worth a thread.
int64_t slots_for(int64_t tiles, double flops, double per_task) {
  return std::max<int64_t>(1, std::min<int64_t>({tiles, max_threads(), static_cast<int64_t>(flops / per_task) + 1}));
}

// ---- integers and f64 ----

template <class T, class Acc, class O>
void plain(const StridedView& a, const StridedView& b, const StridedView& c, const ProductLayout& p) {
  const int64_t rows = std::max<int64_t>(1, (1 << 16) / std::max<int64_t>(1, p.n * p.k));
  parallel_chunks(p.batch * p.m, rows, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const T* x = reinterpret_cast<const T*>(at_batch(a, row / p.m)) + row % p.m * p.am;
      const T* y = reinterpret_cast<const T*>(at_batch(b, row / p.m));
      O* z = reinterpret_cast<O*>(at_batch(c, row / p.m)) + row % p.m * p.cm;
      for (int64_t j = 0; j < p.n; ++j) {
        Acc acc = 0;
        for (int64_t i = 0; i < p.k; ++i)
          acc += static_cast<Acc>(x[i * p.ak]) * static_cast<Acc>(y[i * p.bk + j * p.bn]);
        z[j] = static_cast<O>(acc);
      }
    }
  });
}

// The arithmetic is unsigned, so that overflow wraps.
void whole_numbers(const StridedView& a, const StridedView& b, const StridedView& c, const ProductLayout& p) {
  const bool same = a.dtype == c.dtype;
  WEFT_CHECK(is_integral(a.dtype), "matmul: does not support dtype ", a.dtype);
  with_integer(a.dtype, [&]<class T>(T) {
    same ? plain<T, uint64_t, T>(a, b, c, p) : plain<T, uint64_t, uint64_t>(a, b, c, p);
  });
}

void gemm_f64(const StridedView& a, const StridedView& b, const StridedView& c, const ProductLayout& p) {
  using Strides = Eigen::Stride<Eigen::Dynamic, Eigen::Dynamic>;
  using ColumnMajorMatrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::ColMajor>;
  using RowMajorMatrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  const int64_t tile_m = std::min(p.m, even_part(p.m, 128, 16)), tile_n = std::min(p.n, even_part(p.n, 128, 16));
  const int64_t tiles_m = (p.m + tile_m - 1) / tile_m, tiles_n = (p.n + tile_n - 1) / tile_n;
  const int64_t tiles = p.batch * tiles_m * tiles_n;
  const int64_t slots = slots_for(tiles, 2.0 * static_cast<double>(p.batch * p.m * p.n) * p.k, 1e5);
  parallel_for(slots, [&](int64_t slot) {
    for (int64_t t = tiles * slot / slots; t < tiles * (slot + 1) / slots; ++t) {
      const int64_t tm = t % tiles_m, tn = t / tiles_m % tiles_n, batch = t / tiles_m / tiles_n;
      const int64_t i = tm * tile_m, j = tn * tile_n, m = std::min(tile_m, p.m - i), n = std::min(tile_n, p.n - j);
      const double* x = reinterpret_cast<const double*>(at_batch(a, batch)) + i * p.am;
      const double* y = reinterpret_cast<const double*>(at_batch(b, batch)) + j * p.bn;
      // Operands are copied to column-major first: Eigen has no fast path for two free strides.
      const ColumnMajorMatrix mx = Eigen::Map<const ColumnMajorMatrix, 0, Strides>(x, m, p.k, Strides(p.ak, p.am));
      const ColumnMajorMatrix my = Eigen::Map<const ColumnMajorMatrix, 0, Strides>(y, p.k, n, Strides(p.bn, p.bk));
      Eigen::Map<RowMajorMatrix, 0, Eigen::OuterStride<>>(reinterpret_cast<double*>(at_batch(c, batch)) + i * p.cm + j,
                                                          m, n, Eigen::OuterStride<>(p.cm))
          .noalias() = mx * my;
    }
  });
}

// ---- few rows ----

// A few rows times a matrix, or a matrix times one column. Limited by memory bandwidth, so the matrix is read once and
// never copied. Returns false if the strides do not allow it. A row has the same bits among any few rows. Without AMX,
// a row-major b gives the bits of packed products.
bool few_rows(const StridedView& a, const StridedView& b, const StridedView& c, const ProductLayout& p, void* workspace,
              const GemmHooks& hooks) {
  if (p.m > gemm_few_rows(a.dtype, p.k) && p.n != 1) return false;
  const bool column = p.n == 1 && p.m > 4;  // then the roles of a and b are swapped
  const StridedView &x = column ? b : a, &w = column ? a : b;
  const GemmFill *fill_x = column ? hooks.b : hooks.a, *fill_w = column ? hooks.a : hooks.b;
  const int64_t rows = column ? 1 : p.m, cols = column ? p.m : p.n;
  const int64_t x_row = fill_x ? p.k : column ? 0 : p.am, x_k = fill_x ? 1 : column ? p.bk : p.ak;
  const int64_t w_k = column ? p.ak : p.bk, w_col = column ? p.am : p.bn;
  if (x_k != 1 || (w_k != 1 && w_col != 1) || fill_w) return false;
  static const auto get = WEFT_SELECT(gemv_fn);
  const GemvFn fn = get(w_k != 1, static_cast<int>(panel_type(a.dtype)));
  const int64_t w_stride = w_k == 1 ? w_col : w_k, size = itemsize(a.dtype), out_size = itemsize(c.dtype);
  // Rows of w are read in long pieces, as far as there are columns for all threads. Sums that are not written to c stay
  // in the second-level cache.
  constexpr int64_t kStrip = 2048, kColumns = 384, kTileColumns = 512;
  const int64_t share = (cols + max_threads() - 1) / max_threads(), unit = w_k == 1 ? 48 : 64;
  const int64_t chunk = std::clamp(round_up(share, unit), unit, w_k == 1 ? kColumns : kStrip);
  const int64_t chunks = (cols + chunk - 1) / chunk;
  const int64_t together = std::max<int64_t>(1, (1 << 16) / (p.k * chunk * rows));
  auto run = [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const int64_t batch = t / chunks, j = t % chunks * chunk, n = std::min(chunk, cols - j);
      const char* px = fill_x ? static_cast<const char*>(workspace) : at_batch(x, batch);
      const char* pw = at_batch(w, batch) + j * w_col * size;
      if (!hooks.epilogue && c.dtype == kFloat32 && (!column || p.cm == 1)) {
        fn(px, x_row, rows, pw, w_stride, p.k, n, reinterpret_cast<float*>(at_batch(c, batch)) + j, p.cm);
        continue;
      }
      float sums[kMostFewRows * kStrip];
      fn(px, x_row, rows, pw, w_stride, p.k, n, sums, n);
      for (int64_t i = 0; i < n && hooks.epilogue; i += kTileColumns) {
        const int64_t part = std::min(kTileColumns, n - i);
        hooks.epilogue->run(hooks.epilogue->context, column ? GemmTile{batch, j + i, 0, part, 1, sums + i, 1}
                                                            : GemmTile{batch, 0, j + i, rows, part, sums + i, n});
      }
      if (!hooks.epilogue)
        cast_copy(
            {sums, kFloat32, {rows, n}, {n, 1}},
            {at_batch(c, batch) + j * (column ? p.cm : 1) * out_size, c.dtype, {rows, n}, {p.cm, column ? p.cm : 1}});
    }
  };
  if (!fill_x) {
    parallel_chunks(p.batch * chunks, together, run);
    return true;
  }
  for (int64_t i = 0; i < p.batch; ++i) {
    const GemmFill& f = *fill_x;
    if (column) {
      f.run(f.context, i, 0, 0, p.k, 1, workspace, f.transposed ? p.k : 1);
    } else if (!f.transposed) {
      f.run(f.context, i, 0, 0, rows, p.k, workspace, p.k);
    } else {
      for (int64_t r = 0; r < rows; ++r)
        f.run(f.context, i, r, 0, 1, p.k, static_cast<char*>(workspace) + r * p.k * size, 1);
    }
    parallel_chunks(chunks, together, [&](int64_t begin, int64_t end) { run(i * chunks + begin, i * chunks + end); });
  }
  return true;
}

// ---- packed panels ----

struct PackedTiling : GemmTiling {
  // How b is packed: by each task block by block, by each task in whole matrices, or by all tasks together before any
  // product.
  enum class B { streamed, by_task, shared };
  B b;
  int64_t tiles, slots, slot_b, slot_bytes, shared_bytes, filled_rows;

  PackedTiling(DType in, int64_t batch, int64_t m, int64_t n, int64_t k, GemmFilled filled)
      : GemmTiling(cut(gemm_kernel(panel_type(in)), batch, m, n, k, filled)), tiles(batch * tiles_m * tiles_n) {
    const GemmKernel& g = *kernel;
    constexpr int64_t kSmall = 64 << 10, kMedium = 1 << 20;
    b = blocks || tiles_m <= 1                                        ? B::streamed
        : b_bytes() <= kSmall || (batch >= 4 && b_bytes() <= kMedium) ? B::by_task
                                                                      : B::shared;
    slot_b = b == B::streamed ? tile_ld() * std::min(padded_k(), block_k()) * g.size : b == B::by_task ? b_bytes() : 0;
    shared_bytes = b == B::shared ? round_up(b_bytes(), 64) : 0;
    const double flops = 2.0 * static_cast<double>(batch * m * n) * static_cast<double>(k);
    slots = slots_for(tiles, flops, g.size == 2 ? 4e6 : 1e6);
    filled_rows = filled.a > 0 && m <= g.few_rows ? m * k * g.size : 0;
    slot_bytes = tiles == 0 || k == 0 ? 0 : GemmScratch::bytes(*this, slot_b, filled.a > 0 || filled.b > 0);
  }
  // A filled a of a few rows is written as a whole.
  int64_t workspace() const { return std::max(slots * slot_bytes + shared_bytes, filled_rows); }

 private:
  // Uses blocks if each task has one tile, so that it need not wait for others to pack, or if k is deep and a task has
  // few tiles, so that it packs little more than its share. One column is computed elsewhere; its filled operand needs
  // the room of a whole strip of a.
  static GemmTiling cut(const GemmKernel& g, int64_t batch, int64_t m, int64_t n, int64_t k, GemmFilled filled) {
    const double flops = 2.0 * static_cast<double>(m * n) * static_cast<double>(k);
    // Blocks are faster up to this many tiles of a task: each tile packs both operands. The numbers are measured.
    const int64_t deep_tiles = g.size == 2 ? 6 : 2;
    constexpr int64_t kLeast = 1 << 20;
    if (batch == 1 && m > 4 && n > 1 && flops >= kLeast) {
      const int64_t tasks = slots_for(max_threads(), flops, g.size == 2 ? 4e6 : 1e6);
      const GemmTiling blocks = by_blocks(g, batch, m, n, k, tasks, filled);
      const int64_t tiles = blocks.tiles_m * blocks.tiles_n;
      // Rows of a are packed once per column of tiles, and columns of b once per row of tiles.
      constexpr int64_t kMostFills = 4;
      if (filled.a * blocks.tiles_n > kMostFills || filled.b * blocks.tiles_m > kMostFills)
        return GemmTiling(g, batch, m, n, k, 16);
      if (tiles <= tasks || (k > 2 * g.kc && tiles <= deep_tiles * tasks)) return blocks;
    }
    return GemmTiling(g, batch, m, n, k, 16);
  }
};

// Smaller products keep their scratch on the stack.
constexpr int64_t kOnStack = 32 << 10;

void packed(const StridedView& a, const StridedView& b, const StridedView& c, const ProductLayout& p,
            const PackedTiling& plan, char* workspace, const GemmHooks& hooks) {
  const GemmKernel& g = *plan.kernel;
  const int64_t out_size = itemsize(c.dtype);
  auto source_a = [&](int64_t i) {
    return PanelSource{hooks.a ? nullptr : at_batch(a, i), a.dtype, p.am, p.ak, hooks.a, i};
  };
  auto source_b = [&](int64_t i) {
    return PanelSource{hooks.b ? nullptr : at_batch(b, i), b.dtype, p.bn, p.bk, hooks.b, i};
  };
  // Rows that the kernel can read without packing. f32 rows are packed if there are many columns, or if the rows would
  // all fall into the same lines of the nearest cache.
  const bool direct = !hooks.a && p.ak == 1 && panel_type(a.dtype) == g.direct_type && p.k % g.direct_k == 0 &&
                      plan.tile_m % g.direct_m == 0 && p.m % g.direct_m == 0 &&
                      (g.direct_m > 1 || (p.n <= 256 && p.am * g.size % 4096 != 0));
  const bool large = !hooks.add && large_result(p.batch * p.m * p.n * out_size);
  // Computes tiles begin to end of the whole batch. A task gets rows of a and matrices of b in order.
  auto tiles = [&](const GemmScratch& slot, int64_t begin, int64_t end) {
    int64_t packed_a = -1, packed_b = -1;
    for (int64_t t = begin; t < end; ++t) {
      const int64_t col = t % plan.tiles_n * plan.tile_n, rows_at = t / plan.tiles_n;
      const int64_t row = rows_at % plan.tiles_m * plan.tile_m, i = rows_at / plan.tiles_m;
      const int64_t rows = std::min(plan.tile_m, p.m - row), cols = std::min(plan.tile_n, p.n - col);
      const PanelSource from_a = source_a(i), from_b = source_b(i);
      const char* rows_a = slot.a;
      if (direct)
        rows_a = at_batch(a, i) + row * p.am * g.size;
      else if (plan.blocks)
        rows_a = nullptr;
      else if (packed_a != rows_at)
        pack_panels(g, false, from_a, row, rows, 0, p.k, slot.a, plan.a_panel(), slot.fill);
      packed_a = rows_at;
      const char* panels = static_cast<const char*>(hooks.panels);
      if (panels) {
        // In memory already.
      } else if (plan.b == PackedTiling::B::by_task) {
        if (packed_b != i) pack_panels(g, true, from_b, 0, p.n, 0, p.k, slot.b, plan.b_panel(), slot.fill);
        packed_b = i;
        panels = slot.b;
      } else if (plan.b == PackedTiling::B::shared) {
        panels = workspace + plan.slots * plan.slot_bytes;
      }
      char* to = hooks.epilogue ? nullptr : at_batch(c, i) + (row * p.cm + col) * out_size;
      run_tile({&plan,
                rows,
                cols,
                p.k,
                rows_a,
                direct ? p.am * g.size : 0,
                plan.a_panel(),
                plan.b_panel(),
                panels ? panels + col / g.nr * plan.b_panel() : nullptr,
                &from_a,
                &from_b,
                row,
                col,
                to,
                c.dtype,
                p.cm,
                large,
                hooks.add,
                hooks.epilogue,
                i,
                row,
                col},
               slot);
    }
  };
  auto task_slot = [&](int64_t task) { return GemmScratch(workspace + task * plan.slot_bytes, plan, plan.slot_b); };
  if (plan.b != PackedTiling::B::shared || hooks.panels) {
    return parallel_for(plan.slots, [&](int64_t task) {
      tiles(task_slot(task), plan.tiles * task / plan.slots, plan.tiles * (task + 1) / plan.slots);
    });
  }
  char* panels = workspace + plan.slots * plan.slot_bytes;
  const int64_t each = plan.tiles_m * plan.tiles_n, block_k = plan.block_k(), blocks_k = (p.k + block_k - 1) / block_k,
                pieces = plan.tiles_n * blocks_k;
  const int64_t pack_tasks = std::min(pieces, plan.slots);
  for (int64_t i = 0; i < p.batch; ++i) {
    const PanelSource from = source_b(i);
    if (i == 0 || hooks.b || from.data != source_b(i - 1).data)
      parallel_for(pack_tasks, [&](int64_t task) {
        for (int64_t t = pieces * task / pack_tasks; t < pieces * (task + 1) / pack_tasks; ++t) {
          const int64_t col = t / blocks_k * plan.tile_n, first = t % blocks_k * block_k;
          pack_panels(g, true, from, col, std::min(plan.tile_n, p.n - col), first, std::min(block_k, p.k - first),
                      panels + col / g.nr * plan.b_panel(), plan.b_panel(), task_slot(task).fill);
        }
      });
    const int64_t tasks = std::min(plan.slots, each);
    parallel_for(tasks, [&](int64_t task) {
      tiles(task_slot(task), i * each + each * task / tasks, i * each + each * (task + 1) / tasks);
    });
  }
}

void no_sums(const StridedView& c, const ProductLayout& p, const GemmEpilogue* epilogue) {
  if (!epilogue) return fill(c, 0);
  constexpr int64_t kCols = 256;
  static const float zeros[kCols] = {};
  for (int64_t i = 0; i < p.batch * p.m; ++i)
    for (int64_t j = 0; j < p.n; j += kCols)
      epilogue->run(epilogue->context, {i / p.m, i % p.m, j, 1, std::min(kCols, p.n - j), zeros, kCols});
}

void check_gemm(const StridedView& a, const StridedView& b, const StridedView& c, const GemmHooks& hooks) {
  const int r = a.shape.size();
  WEFT_CHECK(r >= 2 && b.shape.size() == r && c.shape.size() == r, "matmul: got shapes ", a.shape, ", ", b.shape,
             " and ", c.shape, "; need equal numbers of dims, at least 2");
  bool fits = a.shape[r - 1] == b.shape[r - 2] && c.shape[r - 2] == a.shape[r - 2] && c.shape[r - 1] == b.shape[r - 1];
  for (int d = 0; d < r - 2; ++d) fits = fits && a.shape[d] == c.shape[d] && b.shape[d] == c.shape[d];
  WEFT_CHECK(fits, "matmul: shapes do not fit: ", a.shape, " x ", b.shape, " -> ", c.shape);
  const bool floating = is_floating(a.dtype);
  WEFT_CHECK(a.dtype == b.dtype && (c.dtype == a.dtype || (floating && a.dtype != kFloat64 && c.dtype == kFloat32) ||
                                    (!floating && c.dtype == kInt64)),
             "matmul: dtypes do not fit: ", a.dtype, " x ", b.dtype, " -> ", c.dtype);
  WEFT_CHECK(c.shape[r - 1] <= 1 || c.strides[r - 1] == 1, "matmul: the output's last stride is ", c.strides[r - 1],
             "; need 1");
  WEFT_CHECK(itemsize(a.dtype) > 1 || !floating, "matmul: does not support dtype ", a.dtype);
  const bool hooked = hooks.epilogue || hooks.a || hooks.b || hooks.add;
  WEFT_CHECK(!hooked || a.dtype == kFloat32 || a.dtype == kBFloat16 || a.dtype == kFloat16,
             "matmul: hooks take f32, bf16 and f16; got ", a.dtype);
  WEFT_BUG_IF(hooks.panels && (gemm_panel(a.dtype) == 0 || c.shape[r - 1] % gemm_panel(a.dtype) != 0),
              "matmul: panels of ", a.dtype, " for ", c.shape[r - 1], " columns");
  WEFT_CHECK(!hooks.add || (c.dtype == kFloat32 && !hooks.epilogue),
             "matmul: continued sums must be f32 in memory; got ", c.dtype, hooks.epilogue ? " and an epilogue" : "");
}

}  // namespace

void gemm(const StridedView& a, const StridedView& b, const StridedView& c, void* workspace, const GemmHooks* given) {
  const GemmHooks hooks = given ? *given : GemmHooks{};
  check_gemm(a, b, c, hooks);
  const ProductLayout p(a, b, c);
  if (p.batch * p.m * p.n == 0) return;
  if (p.k == 0 && hooks.add) return;
  if (p.k == 0) return no_sums(c, p, hooks.epilogue);
  if (!is_floating(a.dtype)) return whole_numbers(a, b, c, p);
  if (a.dtype == kFloat64) return gemm_f64(a, b, c, p);
  const PackedTiling plan(a.dtype, p.batch, p.m, p.n, p.k,
                          {hooks.a ? std::max(hooks.a->cost, 1) : 0, hooks.b ? std::max(hooks.b->cost, 1) : 0});
  char stack[kOnStack + 64];  // aligned by hand: AddressSanitizer's stack ignores alignas(64)
  if (plan.workspace() <= kOnStack) workspace = stack + 64 - reinterpret_cast<uintptr_t>(stack) % 64;
  WEFT_CHECK(workspace, "matmul: needs ", plan.workspace(), " bytes of workspace; got none");
  // The order of its sums depends on the layout of b; small products keep one order for every layout, with any rows.
  const bool small = p.m * p.n * p.k <= 1024 || (p.m > 4 && p.n > 1 && p.n * p.k <= 1024);
  if (!small && !hooks.add && !hooks.panels && few_rows(a, b, c, p, workspace, hooks)) return;
  packed(a, b, c, p, plan, static_cast<char*>(workspace), hooks);
}

int64_t gemm_few_rows(DType in, int64_t k) {
  // Lanes of short sums take longer to add than packing takes.
  constexpr int64_t kShortSum = 128, kStreamed = 4;
  return k < kShortSum ? kStreamed : gemm_kernel(panel_type(in)).few_rows;
}

int64_t gemm_panel(DType in) {
  if (in != kFloat32) return 0;
  const GemmKernel& g = gemm_kernel(PanelType::f32);
  return g.kr == 1 ? g.nr : 0;
}

int64_t gemm_workspace(DType in, DType, int64_t batch, int64_t m, int64_t n, int64_t k, GemmFilled filled) {
  if (!is_floating(in) || in == kFloat64) return 0;
  const int64_t bytes = PackedTiling(in, batch, m, n, k, filled).workspace();
  return bytes <= kOnStack ? 0 : bytes;
}

}  // namespace weft::kernels
