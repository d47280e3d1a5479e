// Attention's backward. A task owns some keys of a (batch, kv head). It loops over blocks of them, and inside over the
// tiles of queries that see the block. dk and dv of a block stay in the nearest caches, transposed: then the
// probabilities and the scores' gradients are the second operands of their products, and the stage that computes them
// writes them packed. Each task sums dq in f32; if several tasks share it, their sums are added in task order.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "framework/base/error.h"
#include "framework/base/thread_pool.h"
#include "ops/kernels/attention/attention.h"
#include "ops/kernels/attention/attention_plan.h"
#include "ops/kernels/products/gemm_plan.h"

namespace weft::kernels {
namespace internal {
namespace {

constexpr int64_t kWantedTasks = 8, kBlockLd = kTileKeys + 16;
constexpr int64_t kPrivateBytes = 64 << 20;  // limit for dq of all tasks together, unless one task needs more
constexpr int64_t kLocalBytes = 4 << 20;     // max bytes of per-query scratch private to a worker

/// How the work is split, and offsets into the workspace.
struct BackwardSplit {
  AttentionSizes s;
  int64_t owners, members;  // (batch, kv head) pairs with their own keys; query heads of each
  int64_t block, blocks, chunk_blocks, chunks;
  int64_t tasks, slots, q_tiles;
  bool local;  // a task's slot has the scratch of its queries
  // Offsets in the scratch of a query head: max, log_sum and delta; q and dout as packed operands a by tiles, and
  // transposed; and for each chunk, sums of dq and whether there are any.
  int64_t max, log_sum, delta, q_rows, dout_rows, q_packed, dout_packed, dq, touched, head_bytes, dq_bytes;
  // Offsets in a slot:
  int64_t kt, vt, kd, scores, grad, raw, p_panels, d_panels, d, bits, keep, dkt, dvt, plain, line, heads;
  int64_t slot_bytes, heads_at, bytes;

  explicit BackwardSplit(const Attention& a) : s(a) {
    owners = s.kv_batch * s.kv_heads;
    members = s.kv_batch == 0 ? 0 : s.batch / s.kv_batch * s.group;
    block = a.blocks && a.blocks->block_kv % kTileKeys ? kTileKeys / 2 : kTileKeys;
    blocks = ceil_div(s.kv_len, block);
    q_tiles = ceil_div(s.q_len, s.tile_rows);
    dq_bytes = q_tiles * s.tile_rows * s.sums_ld(s.dim) * 4;
    const int64_t all_dq = std::max<int64_t>(1, s.batch * s.heads * dq_bytes);
    const int64_t wanted = owners == 0 ? 1 : ceil_div(kWantedTasks, owners);
    chunks = std::clamp<int64_t>(std::min(wanted, kPrivateBytes / all_dq), 1, std::max<int64_t>(blocks, 1));
    chunk_blocks = std::max<int64_t>(1, ceil_div(blocks, chunks));
    chunks = std::max<int64_t>(1, ceil_div(blocks, chunk_blocks));
    tasks = owners * chunks;
    slots = worker_slots(tasks);

    WorkspaceLayout head;
    max = head.take(q_tiles * s.tile_rows * 4);
    log_sum = head.take(q_tiles * s.tile_rows * 4);
    delta = head.take(q_tiles * s.tile_rows * 4);
    q_rows = head.take(q_tiles * tile_bytes(s.dim));
    dout_rows = head.take(q_tiles * tile_bytes(s.v_dim));
    q_packed = head.take(s.packed_a(s.dim, s.q_len));
    dout_packed = head.take(s.packed_a(s.v_dim, s.q_len));
    dq = head.take(chunks * dq_bytes);
    touched = head.take(chunks * q_tiles);
    head_bytes = head.bytes();
    local = chunks == 1 && members * head_bytes <= kLocalBytes;

    WorkspaceLayout slot;
    const int64_t tile = s.tile_rows * kScoreLd * 4, panels = s.packed_b(kTileKeys, s.tile_rows);
    kt = slot.take(s.packed_b(kTileKeys, s.dim));
    vt = slot.take(s.packed_b(kTileKeys, s.v_dim));
    kd = slot.take(s.packed_b(s.dim, kTileKeys));
    scores = slot.take(tile);
    grad = slot.take(tile);
    raw = slot.take(a.score ? tile : 0);
    p_panels = slot.take(panels);
    d_panels = slot.take(panels);
    d = slot.take(s.narrow ? s.tile_rows * kNarrowLd * 2 : 0);
    bits = slot.take(s.tile_rows * kTileKeys / 8);
    keep = slot.take(s.tile_rows * kTileKeys / 8);
    dkt = slot.take(up_to(up_to(s.dim, s.g->mr), 16) * kBlockLd * 4);
    dvt = slot.take(up_to(up_to(s.v_dim, s.g->mr), 16) * kBlockLd * 4);
    plain = slot.take(kTileKeys * std::max(s.dim, s.v_dim) * s.item);
    line = slot.take(2 * std::max(s.dim, s.v_dim) * s.item);
    heads = slot.take(local ? members * head_bytes : 0);
    slot_bytes = slot.bytes();
    // The passes over queries have a separate number of slots.
    slots = std::max(slots, worker_slots(local ? 1 : s.batch * s.heads * q_tiles));
    WorkspaceLayout all;
    all.take(slots * slot_bytes);
    heads_at = all.take(local ? 0 : s.batch * s.heads * head_bytes);
    bytes = all.bytes();
  }
  /// Bytes of one tile of queries as packed rows.
  int64_t tile_bytes(int64_t k) const { return up_to(s.packed_a(s.tile_rows, k), 64); }
};

/// For each block of keys of the block mask, the blocks of queries that see it, in ascending order.
struct QueryLists {
  struct QueryTile {
    int32_t q_block, tile;
  };
  std::vector<int64_t> offsets;
  std::vector<QueryTile> entries;

  explicit QueryLists(const BlockMaskView& m) : offsets(m.batch * m.heads * m.kv_blocks() + 1) {
    auto each = [&](auto f) {
      for (int64_t set = 0; set < m.batch * m.heads; ++set)
        for (int64_t q = 0; q < m.q_blocks(); ++q)
          for (int64_t i = m.offsets[set * m.q_blocks() + q]; i < m.offsets[set * m.q_blocks() + q + 1]; ++i)
            for (int64_t kv = m.ranges[i].first; kv < m.ranges[i].last; ++kv)
              f(set * m.kv_blocks() + kv, QueryTile{static_cast<int32_t>(q), m.ranges[i].tile});
    };
    each([&](int64_t column, const QueryTile&) { ++offsets[column + 1]; });
    for (size_t i = 1; i < offsets.size(); ++i) offsets[i] += offsets[i - 1];
    entries.resize(offsets.back());
    std::vector<int64_t> next(offsets.begin(), offsets.end() - 1);
    each([&](int64_t column, const QueryTile& e) { entries[next[column]++] = e; });
  }
};

class Backward {
 public:
  Backward(const Attention& a, const AttentionGrad& g, char* workspace)
      : a_(a), g_(g), workspace_(workspace), plan_(a), s_(plan_.s) {
    auto check = [&](const StridedView& v, const StridedView& like, const char* name, bool wide) {
      WEFT_CHECK(v.shape == like.shape && (v.dtype == a.q.dtype || (wide && v.dtype == kFloat32)),
                 "attention_backward: ", name, " is ", v.dtype, " ", v.shape, "; need ", a.q.dtype, " ", like.shape);
    };
    check(g.dq, a.q, "dq", true), check(g.dk, a.k, "dk", true), check(g.dv, a.v, "dv", true);
    StridedView out = a.q;
    out.shape[3] = s_.v_dim;
    check(g.out, out, "out", false), check(g.dout, out, "dout", false);
    WEFT_CHECK(!a_.pages, "attention_backward: paged keys are not supported here; gather the pages first");
    WEFT_CHECK(g.dq.strides[3] == 1 && g.dk.strides[3] == 1 && g.dv.strides[3] == 1,
               "attention_backward: last strides of dq, dk, dv are ", g.dq.strides[3], ", ", g.dk.strides[3], ", ",
               g.dv.strides[3], "; need 1");
    WEFT_CHECK((g.log_sum && g.max) || s_.batch * s_.q_len == 0,
               "attention_backward: no log_sum or no max; need attention's");
    scaled_first_ = a.score || !(a.scale > 0);
    exponent_scale_ = scaled_first_ ? kLog2E : static_cast<float>(a.scale * 1.4426950408889634);
    if (a.blocks) columns_.emplace_back(*a.blocks);
  }

  void run() {
    const int64_t heads = s_.batch * s_.heads;
    if (!plan_.local)
      run_tasks(heads * plan_.q_tiles, plan_.slots, [&](int64_t worker, int64_t i) {
        const int64_t head = i / plan_.q_tiles;
        prepare(slot(worker), head_at(head), head / s_.heads, head % s_.heads, i % plan_.q_tiles);
      });
    const std::vector<int64_t> order = sorted_tasks();
    if (const int64_t groups = a_.score_groups; groups > 0) {
      run_tasks(groups, plan_.slots, [&](int64_t worker, int64_t group) {
        for (int64_t i : order)
          if (i % groups == group) task(slot(worker), i);
      });
    } else {
      run_tasks(plan_.tasks, plan_.slots, [&](int64_t worker, int64_t i) { task(slot(worker), order[i]); });
    }
    if (!plan_.local)
      parallel_for(heads * plan_.q_tiles, [&](int64_t i) {
        const int64_t head = i / plan_.q_tiles;
        store_dq(head_at(head), head / s_.heads, head % s_.heads, i % plan_.q_tiles);
      });
  }

 private:
  char* slot(int64_t worker) const { return workspace_ + worker * plan_.slot_bytes; }
  char* head_at(int64_t head) const { return workspace_ + plan_.heads_at + head * plan_.head_bytes; }
  int64_t member_batch(int64_t owner, int64_t m) const {
    return s_.kv_batch == s_.batch ? owner / s_.kv_heads : m / s_.group;
  }
  int64_t member_head(int64_t owner, int64_t m) const { return owner % s_.kv_heads * s_.group + m % s_.group; }

  // Calls f for the tiles of queries that see key block `kb` (of plan_.block keys) of (batch, head).
  template <class F>
  void for_tiles(int64_t batch, int64_t head, int64_t kb, F f) const {
    if (!a_.blocks) {
      for (int64_t t = 0; t < plan_.q_tiles; ++t) f(t, a_.mask ? BlockRange::kUnknown : BlockRange::kFull);
      return;
    }
    const BlockMaskView& m = *a_.blocks;
    const int64_t set = mask_row(m, batch, head) / std::max<int64_t>(1, m.q_blocks());
    const int64_t column = set * m.kv_blocks() + kb * plan_.block / m.block_kv, per = m.block_q / s_.tile_rows;
    const QueryLists& c = columns_.front();
    for (int64_t i = c.offsets[column]; i < c.offsets[column + 1]; ++i)
      for (int64_t t = c.entries[i].q_block * per; t < std::min((c.entries[i].q_block + 1) * per, plan_.q_tiles); ++t)
        f(t, c.entries[i].tile);
  }

  std::vector<int64_t> sorted_tasks() const {
    std::vector<int64_t> order(plan_.tasks), work(plan_.tasks);
    for (int64_t i = 0; i < plan_.tasks; ++i) order[i] = i;
    if (!a_.blocks) return order;
    for (int64_t i = 0; i < plan_.tasks; ++i) {
      const int64_t owner = i / plan_.chunks, first = i % plan_.chunks * plan_.chunk_blocks;
      for (int64_t m = 0; m < plan_.members; ++m)
        for (int64_t kb = first; kb < std::min(first + plan_.chunk_blocks, plan_.blocks); ++kb) {
          const BlockMaskView& v = *a_.blocks;
          const int64_t b = member_batch(owner, m), h = member_head(owner, m);
          const int64_t set = mask_row(v, b, h) / std::max<int64_t>(1, v.q_blocks());
          const int64_t column = set * v.kv_blocks() + kb * plan_.block / v.block_kv;
          work[i] += columns_.front().offsets[column + 1] - columns_.front().offsets[column];
        }
    }
    std::stable_sort(order.begin(), order.end(), [&](int64_t x, int64_t y) { return work[x] > work[y]; });
    return order;
  }

  // A row with contiguous elements: the row itself, or a copy in `to`.
  const void* line(const StridedView& v, int64_t b, int64_t h, int64_t i, char* to) const {
    const char* from = at(v, b, h, i);
    if (v.strides[3] == 1) return from;
    for (int64_t d = 0; d < v.shape[3]; ++d) std::memcpy(to + d * s_.item, from + d * v.strides[3] * s_.item, s_.item);
    return to;
  }
  // Dot products of rows of x and y; `memory` has room for a row of each.
  void dots(const StridedView& x, const StridedView& y, int64_t b, int64_t h, int64_t first, int64_t rows, char* memory,
            float* out, bool* finite) const {
    const int64_t n = x.shape[3];
    if (x.strides[3] == 1 && y.strides[3] == 1)
      return s_.stages->dots(at(x, b, h, first), x.strides[2], at(y, b, h, first), y.strides[2], rows, n, s_.type, out,
                             finite);
    for (int64_t i = 0; i < rows; ++i)
      s_.stages->dots(line(x, b, h, first + i, memory), 0, line(y, b, h, first + i, memory + n * s_.item), 0, 1, n,
                      s_.type, out + i, finite + i);
  }
  bool finite(const StridedView& v, int64_t b, int64_t h, int64_t first, int64_t rows, char* memory) const {
    float out[kScoreTileRows];
    bool each[kScoreTileRows];
    dots(v, v, b, h, first, rows, memory, out, each);
    return std::all_of(each, each + rows, [](bool x) { return x; });
  }

  // Computes max, log_sum, delta and the transposed operands of one tile of queries. Operands whose rows are summed
  // must not spread infinity to other rows through a masked 0.
  void prepare(char* slot, char* head, int64_t b, int64_t h, int64_t tile) const {
    const int64_t q0 = tile * s_.tile_rows, n = std::min(s_.tile_rows, s_.q_len - q0);
    float* max = reinterpret_cast<float*>(head + plan_.max) + q0;
    float* log_sum = reinterpret_cast<float*>(head + plan_.log_sum) + q0;
    float* delta = reinterpret_cast<float*>(head + plan_.delta) + q0;
    char* memory = slot + plan_.line;
    bool good[kScoreTileRows];
    dots(g_.out, g_.dout, b, h, q0, n, memory, delta, good);
    bool finite_dout = true;
    for (int64_t i = 0; i < n; ++i) {
      const int64_t row = (b * s_.heads + h) * s_.q_len + q0 + i;
      if (g_.dlse) delta[i] -= g_.dlse[row];
      const bool none = g_.log_sum[row] == -std::numeric_limits<float>::infinity();
      max[i] = none ? 0.0f : g_.max[row];
      log_sum[i] = none ? 0.0f : g_.log_sum[row] * kLog2E;
      if (!good[i] && has_mask(a_)) log_sum[i] = std::numeric_limits<float>::quiet_NaN();
      finite_dout &= good[i];
    }
    const bool finite_q = !has_mask(a_) || finite(a_.q, b, h, q0, n, memory);
    pack_rows(head + plan_.q_rows + tile * plan_.tile_bytes(s_.dim), a_.q, b, h, q0, n);
    pack_rows(head + plan_.dout_rows + tile * plan_.tile_bytes(s_.v_dim), g_.dout, b, h, q0, n);
    pack_transposed(head + plan_.q_packed, a_.q, b, h, q0, n, finite_q, slot);
    pack_transposed(head + plan_.dout_packed, g_.dout, b, h, q0, n, finite_dout || !has_mask(a_), slot);
    for (int64_t c = 0; c < plan_.chunks; ++c) head[plan_.touched + c * plan_.q_tiles + tile] = 0;
  }
  void pack_rows(char* to, const StridedView& v, int64_t b, int64_t h, int64_t q0, int64_t n) const {
    const HeadMatrix m = rows_of(v, s_.type, b, h, q0, n);
    s_.g->pack_a({m.data, m.type, m.row_stride, m.column_stride, n, m.columns, to, s_.panel(s_.g->mr, m.columns)});
  }
  void pack_transposed(char* to, const StridedView& v, int64_t b, int64_t h, int64_t q0, int64_t n, bool finite,
                       char* slot) const {
    HeadMatrix m = rows_of(v, s_.type, b, h, q0, n);
    if (!finite) m = sanitised(m, slot + plan_.plain);
    const GemmKernel& g = *s_.g;
    g.pack_a({m.data, m.type, m.column_stride, m.row_stride, m.columns, n, to + q0 * g.mr * g.size,
              s_.panel(g.mr, s_.q_len)});
  }

  void task(char* slot, int64_t task) const {
    const int64_t owner = task / plan_.chunks, chunk = task % plan_.chunks;
    if (plan_.local)
      for (int64_t m = 0; m < plan_.members; ++m)
        for (int64_t t = 0; t < plan_.q_tiles; ++t)
          prepare(slot, member(slot, owner, m), member_batch(owner, m), member_head(owner, m), t);
    const int64_t first = chunk * plan_.chunk_blocks, last = std::min(first + plan_.chunk_blocks, plan_.blocks);
    for (int64_t kb = first; kb < last; ++kb) key_block(slot, task, owner, chunk, kb);
    if (plan_.local)
      for (int64_t m = 0; m < plan_.members; ++m)
        for (int64_t t = 0; t < plan_.q_tiles; ++t)
          store_dq(member(slot, owner, m), member_batch(owner, m), member_head(owner, m), t);
  }
  char* member(char* slot, int64_t owner, int64_t m) const {
    if (plan_.local) return slot + plan_.heads + m * plan_.head_bytes;
    return head_at(member_batch(owner, m) * s_.heads + member_head(owner, m));
  }

  void key_block(char* slot, int64_t task, int64_t owner, int64_t chunk, int64_t kb) const {
    const GemmKernel& g = *s_.g;
    const int64_t b = owner / s_.kv_heads, h = owner % s_.kv_heads;
    const int64_t kv0 = kb * plan_.block, n = std::min(plan_.block, s_.kv_len - kv0);
    HeadMatrix k = rows_of(a_.k, s_.type, b, h, kv0, n);
    const HeadMatrix v = rows_of(a_.v, s_.type, b, h, kv0, n);
    g.pack_b({k.data, k.type, k.row_stride, k.column_stride, n, s_.dim, slot + plan_.kt, s_.panel(g.nr, s_.dim)});
    g.pack_b({v.data, v.type, v.row_stride, v.column_stride, n, s_.v_dim, slot + plan_.vt, s_.panel(g.nr, s_.v_dim)});
    if (has_mask(a_) && !finite(a_.k, b, h, kv0, n, slot + plan_.line)) k = sanitised(k, slot + plan_.plain);
    g.pack_b({k.data, k.type, k.column_stride, k.row_stride, s_.dim, n, slot + plan_.kd, s_.panel(g.nr, kTileKeys)});
    float *dkt = reinterpret_cast<float*>(slot + plan_.dkt), *dvt = reinterpret_cast<float*>(slot + plan_.dvt);
    auto clear = [&] {
      std::fill(dkt, dkt + s_.dim * kBlockLd, 0.0f);
      std::fill(dvt, dvt + s_.v_dim * kBlockLd, 0.0f);
    };
    bool empty = true;  // dkt and dvt have no sums yet
    for (int64_t m = 0; m < plan_.members; ++m) {
      char* head = member(slot, owner, m);
      const int64_t batch = member_batch(owner, m), q_head = member_head(owner, m);
      for_tiles(batch, q_head, kb, [&](int64_t tile, int32_t kind) {
        const int64_t q0 = tile * s_.tile_rows;
        const RowBlock rows{batch, q_head, 1, q0, std::min(s_.tile_rows, s_.q_len - q0)};
        key_step(a_, rows, kv0, n, kind, reinterpret_cast<uint8_t*>(slot + plan_.bits), [&](const KeyStep& step) {
          const bool whole = step.cols == n;
          if (empty && !whole) clear();
          tile_step(slot, head, task, chunk, rows, step, step.kv0 - kv0, empty && whole);
          empty = false;
        });
      });
    }
    if (empty) clear();
    s_.stages->store_transposed(dkt, kBlockLd, s_.dim, n, static_cast<float>(a_.scale), at(g_.dk, b, h, kv0),
                                g_.dk.strides[2], panel_type(g_.dk.dtype));
    s_.stages->store_transposed(dvt, kBlockLd, s_.v_dim, n, 1, at(g_.dv, b, h, kv0), g_.dv.strides[2],
                                panel_type(g_.dv.dtype));
  }

  // One tile of queries against the keys of a block from `col` on.
  void tile_step(char* slot, char* head, int64_t task, int64_t chunk, const RowBlock& rows, const KeyStep& k,
                 int64_t col, bool first) const {
    const GemmKernel& g = *s_.g;
    const int64_t n = rows.queries;
    float *scores = reinterpret_cast<float*>(slot + plan_.scores), *grad = reinterpret_cast<float*>(slot + plan_.grad);
    auto product = [&](int64_t queries, int64_t depth, int64_t panels, float* to) {
      GemmBlock p{};
      p.a = head + queries + rows.q0 / s_.tile_rows * plan_.tile_bytes(depth), p.a_stride = s_.panel(g.mr, depth);
      p.m = n, p.k = depth, p.b_stride = s_.panel(g.nr, depth);
      p.b = slot + panels + col / g.nr * p.b_stride;
      p.n = k.cols, p.to = to, p.to_ld = kScoreLd, p.to_type = PanelType::f32, p.to_whole = true;
      g.run(p);
    };
    product(plan_.q_rows, s_.dim, plan_.kt, scores);
    product(plan_.dout_rows, s_.v_dim, plan_.vt, grad);

    float* raw = reinterpret_cast<float*>(slot + plan_.raw);
    if (scaled_first_ && !a_.score) s_.stages->scale(scores, kScoreLd, n, k.cols, static_cast<float>(a_.scale));
    GradTile t{scores, grad, kScoreLd, n, k.cols, k.bits, k.row_bytes};
    if (a_.dropout.p > 0) {
      uint8_t* keep = reinterpret_cast<uint8_t*>(slot + plan_.keep);
      keep_points(a_, s_, rows, k, keep);
      t.keep = keep, t.keep_scale = static_cast<float>(1 / (1 - a_.dropout.p));
    }
    t.scale = exponent_scale_;
    t.max = reinterpret_cast<float*>(head + plan_.max) + rows.q0;
    t.log_sum = reinterpret_cast<float*>(head + plan_.log_sum) + rows.q0;
    t.delta = reinterpret_cast<float*>(head + plan_.delta) + rows.q0;
    t.raw = raw;
    t.p_panels = slot + plan_.p_panels, t.d_panels = slot + plan_.d_panels;
    t.panel_stride = s_.panel(g.nr, s_.tile_rows);
    t.d = s_.narrow ? slot + plan_.d : slot + plan_.grad, t.d_ld = s_.narrow ? kNarrowLd : kScoreLd;
    if (a_.score) {
      for_strips(rows, [&](int64_t head, int64_t row, int64_t count) {
        const GradTile strip = strip_of(t, row, count);
        const ScoreTile tile = score_tile(a_, rows, k, task, head, row, count);
        std::memcpy(strip.raw, strip.scores, count * kScoreLd * 4);
        a_.score->forward(a_.score->context, tile, scores + row * kScoreLd);
        s_.stages->gradient_before_hook(strip);
        a_.score->backward(a_.score->context, tile, strip.raw, strip.grad);
        s_.stages->gradient_after_hook(strip);
      });
    } else {
      s_.stages->gradient(t);
    }

    auto add = [&](int64_t packed, int64_t panels, int64_t m, int64_t sums) {
      GemmBlock p{};
      p.a = head + packed + rows.q0 * g.mr * g.size, p.a_stride = s_.panel(g.mr, s_.q_len);
      p.b = slot + panels, p.b_stride = t.panel_stride;
      p.m = m, p.n = k.cols, p.k = n;
      float* to = reinterpret_cast<float*>(slot + sums) + col;
      p.from = first ? nullptr : to, p.from_ld = kBlockLd, p.to = to, p.to_ld = kBlockLd, p.to_type = PanelType::f32,
      p.to_whole = true;
      g.run(p);
    };
    add(plan_.dout_packed, plan_.p_panels, s_.v_dim, plan_.dvt);
    add(plan_.q_packed, plan_.d_panels, s_.dim, plan_.dkt);

    GemmBlock p{};
    char& touched = head[plan_.touched + chunk * plan_.q_tiles + rows.q0 / s_.tile_rows];
    const int64_t ld = s_.sums_ld(s_.dim);
    float* dq = reinterpret_cast<float*>(head + plan_.dq + chunk * plan_.dq_bytes) + rows.q0 * ld;
    p.a = t.d, p.a_line = s_.p_line();
    p.b = slot + plan_.kd + col * g.nr * g.size, p.b_stride = s_.panel(g.nr, kTileKeys);
    p.m = n, p.n = s_.dim, p.k = k.cols;
    p.from = touched ? dq : nullptr, p.from_ld = ld;
    p.to = dq, p.to_ld = ld, p.to_type = PanelType::f32, p.to_whole = true;
    g.run(p);
    touched = 1;
  }

  // A strip of a tile's rows; `first` is a multiple of 32.
  GradTile strip_of(GradTile t, int64_t first, int64_t count) const {
    const int64_t at = first * t.ld;
    t.scores += at, t.grad += at, t.raw += at;
    t.rows = count;
    if (t.bits) t.bits += first * t.row_bytes;
    if (t.keep) t.keep += first * (kTileKeys / 8);
    t.max += first, t.log_sum += first, t.delta += first;
    t.p_panels = static_cast<char*>(t.p_panels) + first * s_.g->nr * s_.g->size;
    t.d_panels = static_cast<char*>(t.d_panels) + first * s_.g->nr * s_.g->size;
    t.d = static_cast<char*>(t.d) + first * s_.p_line();
    return t;
  }

  void store_dq(char* head, int64_t b, int64_t h, int64_t tile) const {
    const int64_t q0 = tile * s_.tile_rows, ld = s_.sums_ld(s_.dim);
    const float* pieces[kWantedTasks];
    int64_t count = 0;
    for (int64_t c = 0; c < plan_.chunks; ++c)
      if (head[plan_.touched + c * plan_.q_tiles + tile])
        pieces[count++] = reinterpret_cast<float*>(head + plan_.dq + c * plan_.dq_bytes) + q0 * ld;
    s_.stages->store_sum(pieces, count, ld, std::min(s_.tile_rows, s_.q_len - q0), s_.dim, static_cast<float>(a_.scale),
                         at(g_.dq, b, h, q0), g_.dq.strides[2], panel_type(g_.dq.dtype));
  }

  const Attention& a_;
  const AttentionGrad& g_;
  char* workspace_;
  const BackwardSplit plan_;
  const AttentionSizes& s_;
  bool scaled_first_;
  float exponent_scale_;
  std::vector<QueryLists> columns_;  // one if there is a block mask
};

}  // namespace
}  // namespace internal

void attention_backward(const Attention& a, const AttentionGrad& g, void* workspace) {
  internal::Backward(a, g, static_cast<char*>(workspace)).run();
}
int64_t attention_backward_workspace(const Attention& a) { return internal::BackwardSplit(a).bytes; }
int64_t attention_tasks(const Attention& a) { return internal::BackwardSplit(a).tasks; }

}  // namespace weft::kernels
