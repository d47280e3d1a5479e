// Products over groups of rows: one list of the tiles of all groups, divided among the tasks by work.
#include <algorithm>
#include <cstring>

#include "framework/base/thread_pool.h"
#include "ops/kernels/kernels.h"
#include "ops/kernels/products/gemm.h"
#include "ops/kernels/products/gemm_plan.h"

namespace weft::kernels {
namespace {

constexpr int64_t kWideTile = 1024;

struct Offsets {
  const StridedView& v;
  int64_t operator[](int64_t i) const {
    return v.dtype == kInt64 ? v.as<int64_t>()[i * v.strides[0]] : v.as<int32_t>()[i * v.strides[0]];
  }
};

void check_offsets(const Offsets& o, int64_t groups, int64_t t) {
  WEFT_CHECK_AS(kOutOfRange, o[0] >= 0, "grouped_matmul: offsets[0] is ", o[0], "; need at least 0");
  for (int64_t e = 0; e < groups; ++e)
    WEFT_CHECK_AS(kOutOfRange, o[e] <= o[e + 1], "grouped_matmul: offsets must ascend; offsets[", e, "] is ", o[e],
                  " and offsets[", e + 1, "] is ", o[e + 1]);
  WEFT_CHECK_AS(kOutOfRange, o[groups] <= t, "grouped_matmul: offsets[", groups, "] is ", o[groups], "; there are ", t,
                " rows");
}

// In mode rows, all tasks together pack the panels of b (each group's matrix) before any product. In mode contraction,
// where k is deep, each tile packs block by block.
struct GroupedTiling {
  GroupedMode mode;
  int64_t groups, t;
  GemmTiling tile;  // rows: of one group with t / groups rows; contraction: of one group with all rows
  int64_t slots, slot_b, slot_bytes, panels_bytes;

  GroupedTiling(GroupedMode mode_, DType in, int64_t groups_, int64_t t_, int64_t k, int64_t n)
      : mode(mode_), groups(groups_), t(t_), tile(cut(gemm_kernel(panel_type(in)), k, n)) {
    const GemmKernel& g = *tile.kernel;
    slots = tasks(g, k, n);
    slot_b = by_rows() ? 0 : tile.tile_ld() * tile.a_depth() * g.size;
    panels_bytes = by_rows() ? round_up(groups * tile.padded_k() * round_up(n, g.nr) * g.size, 64) : 0;
    slot_bytes = GemmScratch::bytes(tile, slot_b, false);
  }
  bool by_rows() const { return mode == GroupedMode::rows; }
  int64_t workspace() const { return t == 0 || tile.n == 0 ? 0 : slots * slot_bytes + panels_bytes; }
  // The expected rows of a group; at least a tile's worth, because groups differ in size.
  int64_t rows_each() const { return std::min(t, std::max<int64_t>(256, t / std::max<int64_t>(groups, 1))); }

 private:
  int64_t tasks(const GemmKernel& g, int64_t k, int64_t n) const {
    const double flops = 2.0 * static_cast<double>(t) * static_cast<double>(k * n);
    return std::max<int64_t>(
        1, std::min<int64_t>(max_threads(), static_cast<int64_t>(flops / (g.size == 2 ? 4e6 : 1e6)) + 1));
  }
  GemmTiling cut(const GemmKernel& g, int64_t k, int64_t n) const {
    const int64_t matrices = std::max<int64_t>(groups, 1);
    if (by_rows()) {
      GemmTiling p(g, matrices, rows_each(), n, k, 16);
      // Tiles have whole lines of the result if these are not too long: other memory that an epilogue reads is then
      // contiguous.
      if (p.tiles_n > 1 && n <= kWideTile) p.widen();
      return p;
    }
    // A task has several tiles, because groups differ in size.
    return GemmTiling::by_blocks(g, 1, k, n, t, std::max<int64_t>(2, 8 * tasks(g, k, n) / matrices));
  }
};

struct RowGroup {
  int64_t index, first, rows;
};

class Grouped {
 public:
  Grouped(const GroupedTiling& p, const StridedView& a, const StridedView& b, const Offsets& offsets,
          const StridedView& out, char* workspace, const GemmEpilogue* epilogue)
      : p_(p),
        g_(*p.tile.kernel),
        a_(a),
        b_(b),
        out_(out),
        offsets_(offsets),
        workspace_(workspace),
        epilogue_(epilogue) {}

  void run() {
    const int64_t columns = p_.tile.tiles_n;
    if (p_.by_rows())
      parallel_for(p_.slots, [&](int64_t task) {
        const int64_t pieces = p_.groups * columns;
        for (int64_t t = pieces * task / p_.slots; t < pieces * (task + 1) / p_.slots; ++t)
          pack_b(group(t / columns), t % columns * p_.tile.tile_n, slot(task));
      });
    double all = 0;
    for (int64_t e = 0; e < p_.groups; ++e) all += work(group(e));
    parallel_for(p_.slots, [&](int64_t task) {
      const double begin = all * static_cast<double>(task) / static_cast<double>(p_.slots);
      const double end = all * static_cast<double>(task + 1) / static_cast<double>(p_.slots);
      double at = 0;
      for (int64_t e = 0; e < p_.groups; ++e) {
        const RowGroup now = group(e);
        const double w = work(now);
        if (w > 0 && at + w > begin && at < end) tiles(now, at, begin, end, slot(task));
        at += w;
      }
    });
  }

 private:
  GemmScratch slot(int64_t task) const { return GemmScratch(workspace_ + task * p_.slot_bytes, p_.tile, p_.slot_b); }
  RowGroup group(int64_t e) const { return {e, offsets_[e], offsets_[e + 1] - offsets_[e]}; }
  double work(const RowGroup& group) const { return static_cast<double>(group.rows); }
  char* panels() const { return workspace_ + p_.slots * p_.slot_bytes; }
  // Mode rows: the panels of the group's matrix.
  char* group_panels(const RowGroup& group) const { return panels() + group.index * p_.tile.b_bytes(); }
  PanelSource source_a(const RowGroup& group) const {
    const int64_t line = a_.strides[p_.by_rows() ? 0 : 1], k = a_.strides[p_.by_rows() ? 1 : 0];
    return {address(a_, group.first * a_.strides[0]), a_.dtype, line, k};
  }
  PanelSource source_b(const RowGroup& group) const {
    const int r = b_.shape.size();
    const int64_t first = p_.by_rows() ? group.index : group.first;
    return {address(b_, first * b_.strides[0]), b_.dtype, b_.strides[r - 1], b_.strides[r - 2]};
  }
  const char* address(const StridedView& v, int64_t offset) const {
    return static_cast<const char*>(v.data) + offset * itemsize(v.dtype);
  }

  void pack_b(const RowGroup& group, int64_t col, const GemmScratch& slot) const {
    if (group.rows == 0) return;
    pack_panels(g_, true, source_b(group), col, std::min(p_.tile.tile_n, p_.tile.n - col), 0, a_.shape[1],
                group_panels(group) + col / g_.nr * p_.tile.b_panel(), p_.tile.b_panel(), slot.fill);
  }

  // Computes the tiles of a group whose middle, in units of work starting at `at`, is between begin and end.
  void tiles(const RowGroup& group, double at, double begin, double end, const GemmScratch& slot) const {
    const GemmTiling& tile = p_.tile;
    const int64_t m = p_.by_rows() ? group.rows : tile.m, k = p_.by_rows() ? a_.shape[1] : group.rows;
    const int64_t tile_m = std::min(m, even_part(m, round_up(tile.tile_m, g_.mr), g_.mr));
    const int64_t tiles_m = (m + tile_m - 1) / tile_m, count = tiles_m * tile.tiles_n;
    const PanelSource from_a = source_a(group), from_b = source_b(group);
    int64_t packed = -1;
    for (int64_t t = 0; t < count; ++t) {
      const double middle = at + work(group) * (static_cast<double>(t) + 0.5) / static_cast<double>(count);
      if (middle < begin || middle >= end) continue;
      const int64_t row = t / tile.tiles_n * tile_m, col = t % tile.tiles_n * tile.tile_n;
      const int64_t rows = std::min(tile_m, m - row);
      if (!tile.blocks && packed != row)
        pack_panels(g_, false, from_a, row, rows, 0, k, slot.a, tile.a_panel(), slot.fill);
      packed = row;
      const int64_t line = p_.by_rows() ? out_.strides[0] : out_.strides[1];
      const int64_t to = (p_.by_rows() ? group.first * line : group.index * out_.strides[0]) + row * line + col;
      TileRun run{.plan = &tile, .rows = rows, .cols = std::min(tile.tile_n, tile.n - col), .k = k};
      if (!tile.blocks) run.a = slot.a, run.b = group_panels(group) + col / g_.nr * tile.b_panel();
      run.a_panel = tile.a_panel(), run.b_panel = tile.b_panel();
      run.a_source = &from_a, run.b_source = &from_b, run.a_at = row, run.b_at = col;
      run.c = epilogue_ ? nullptr : const_cast<char*>(address(out_, to)), run.out = out_.dtype, run.ldc = line;
      run.large = large_result(out_.nbytes());
      run.epilogue = epilogue_, run.batch = group.index, run.row = group.first + row, run.col = col;
      run_tile(run, slot);
    }
  }

  const GroupedTiling& p_;
  const GemmKernel& g_;
  const StridedView &a_, &b_, &out_;
  const Offsets& offsets_;
  char* const workspace_;
  const GemmEpilogue* const epilogue_;
};

}  // namespace

int64_t grouped_gemm_workspace(GroupedMode mode, DType in, DType, int64_t groups, int64_t t, int64_t k, int64_t n) {
  return in == kFloat64 ? 0 : GroupedTiling(mode, in, groups, t, std::max<int64_t>(k, 1), n).workspace();
}

void grouped_gemm(GroupedMode mode, const StridedView& a, const StridedView& b, const StridedView& offsets,
                  const StridedView& out, void* workspace, const GemmEpilogue* epilogue) {
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
  WEFT_CHECK(n <= 1 || out.strides.back() == 1, "grouped_matmul: the output's last stride is ", out.strides.back(),
             "; need 1");
  WEFT_CHECK(!epilogue || (by_rows && a.dtype != kFloat64), "grouped_matmul: an epilogue takes mode rows and no f64");
  const Offsets o{offsets};
  check_offsets(o, groups, t);
  if (out.numel() == 0) return;
  const int64_t in_size = itemsize(a.dtype), out_size = itemsize(out.dtype);
  auto rows_of = [&](const StridedView& v, int64_t first, int64_t count) {
    StridedView part = v;
    part.data = static_cast<char*>(v.data) + first * v.strides[0] * itemsize(v.dtype);
    part.shape[0] = count;
    return part;
  };
  // Fill the part that no tile covers.
  if (k == 0 && !epilogue) return fill(out, 0);
  if (by_rows && !epilogue) {
    fill(rows_of(out, 0, groups ? o[0] : 0), 0);
    fill(rows_of(out, groups ? o[groups] : 0, t - (groups ? o[groups] : 0)), 0);
  } else if (!by_rows) {
    for (int64_t e = 0; e < groups; ++e)
      if (o[e] == o[e + 1]) fill(rows_of(out, e, 1), 0);
  }

  if (a.dtype == kFloat64) {  // one product after another, each of them parallel
    for (int64_t e = 0; e < groups; ++e) {
      const int64_t first = o[e], rows = o[e + 1] - first;
      char* pa = static_cast<char*>(a.data) + first * a.strides[0] * in_size;
      if (by_rows) {
        gemm({pa, a.dtype, {rows, k}, {a.strides[0], a.strides[1]}},
             {static_cast<char*>(b.data) + e * b.strides[0] * in_size, b.dtype, {k, n}, {b.strides[1], b.strides[2]}},
             {static_cast<char*>(out.data) + first * out.strides[0] * out_size,
              out.dtype,
              {rows, n},
              {out.strides[0], 1}},
             nullptr);
      } else {
        gemm({pa, a.dtype, {k, rows}, {a.strides[1], a.strides[0]}},
             {static_cast<char*>(b.data) + first * b.strides[0] * in_size,
              b.dtype,
              {rows, n},
              {b.strides[0], b.strides[1]}},
             {static_cast<char*>(out.data) + e * out.strides[0] * out_size, out.dtype, {k, n}, {out.strides[1], 1}},
             nullptr);
      }
    }
    return;
  }

  const GroupedTiling p(mode, a.dtype, groups, t, std::max<int64_t>(k, 1), n);
  if (p.workspace() == 0) return;
  WEFT_CHECK(workspace, "grouped_matmul: needs ", p.workspace(), " bytes of workspace; got none");
  Grouped(p, a, b, o, out, static_cast<char*>(workspace), epilogue).run();
}

}  // namespace weft::kernels
