#include "ops/kernels/attention/attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "framework/base/error.h"
#include "framework/base/thread_pool.h"
#include "ops/kernels/attention/attention_plan.h"
#include "ops/kernels/products/gemm_plan.h"

namespace weft::kernels {
namespace internal {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr int64_t kPackKeys = 512;       // keys packed by one task
constexpr int64_t kHeadBytes = 1 << 20;  // packed keys and values in a worker's private memory
constexpr int64_t kWantedTasks = 8, kLeastPiece = 512;
constexpr int64_t kRowsInPlace = 8,
                  kRowsInPlaceNarrow = 4;  // up to this number of queries, packing the keys does not pay off
constexpr int64_t kWantedOnce = 16;        // tasks, if keys are read once and memory bandwidth is the limit

/// How the work is split, and offsets into the workspace.
struct ForwardSplit {
  AttentionSizes s;
  int64_t tile_heads, head_blocks, q_blocks;  // tiles of one (batch, kv head): head_blocks x q_blocks
  bool by_head;    // a task computes all tiles of a (batch, kv head) and packs its keys itself
  bool once;       // only one tile reads each key, and packs it for itself
  bool in_place;   // `once`, and the queries are too few for keys to be packed
  int64_t pieces;  // several tasks may share the keys of a tile; their results are merged afterwards
  int64_t tiles, tasks, slots;
  int64_t packed_keys, k_bytes, v_bytes;  // keys packed at a time
  // Offsets in a slot:
  int64_t q, gathered, scores, p, bits, keep, row, state, slot_keys, together, slot_bytes;
  // Offsets in the workspace, after the slots:
  int64_t keys, states, bytes;

  explicit ForwardSplit(const Attention& a) : s(a) {
    const bool one_mask = !a.blocks || a.blocks->heads == 1;
    tile_heads = one_mask && s.q_len > 0 ? std::clamp<int64_t>(s.tile_rows / s.q_len, 1, s.group) : 1;
    head_blocks = ceil_div(s.group, tile_heads);
    q_blocks = ceil_div(s.q_len, s.tile_rows);
    once = head_blocks * q_blocks == 1 && (s.kv_batch == s.batch || s.batch == 1);
    in_place = head_blocks * q_blocks == 1 && tile_heads * s.q_len <= (s.narrow ? kRowsInPlaceNarrow : kRowsInPlace) &&
               a.k.strides[3] == 1 && a.v.strides[3] == 1;
    once = once || in_place;
    packed_keys = once ? kTileKeys : s.kv_len;
    k_bytes = in_place ? 0 : up_to(s.packed_b(packed_keys, s.dim), 64);
    v_bytes = in_place ? 0 : up_to(s.packed_b(s.v_dim, packed_keys), 64);
    const int64_t heads = s.batch * s.kv_heads;
    tiles = heads * head_blocks * q_blocks;
    by_head = !once && heads >= kWantedTasks && k_bytes + v_bytes <= kHeadBytes;
    const int64_t wanted = once ? kWantedOnce : kWantedTasks;
    pieces = 1;
    if (!by_head && tiles > 0 && tiles < wanted)
      pieces = std::clamp<int64_t>(s.kv_len / kLeastPiece, 1, ceil_div(wanted, tiles));
    tasks = by_head ? heads : tiles * pieces;
    slots = worker_slots(tasks);

    WorkspaceLayout slot;
    q = slot.take(s.packed_a(s.tile_rows, s.dim));
    gathered = slot.take(s.tile_rows * s.dim * s.item);
    scores = slot.take(s.tile_rows * kScoreLd * 4);
    p = slot.take(s.narrow ? s.tile_rows * kNarrowLd * 2 : 0);
    bits = slot.take(s.tile_rows * kTileKeys / 8);
    keep = slot.take(s.tile_rows * kTileKeys / 8);
    row = slot.take(s.tile_rows * s.v_dim * 4);
    state = slot.take(state_bytes());
    slot_keys = slot.take(by_head || once ? k_bytes + v_bytes : 0);
    together = slot.take(a.pages && !in_place ? kPackKeys * std::max(s.dim, s.v_dim) * s.item : 0);
    slot_bytes = slot.bytes();
    WorkspaceLayout all;
    all.take(slots * slot_bytes);
    keys = all.take(by_head || once ? 0 : s.kv_batch * s.kv_heads * (k_bytes + v_bytes));
    states = all.take(pieces > 1 ? tasks * state_bytes() : 0);
    bytes = tiles == 0 ? 0 : all.bytes();
  }
  int64_t out_ld() const { return s.sums_ld(s.v_dim); }
  int64_t state_bytes() const { return up_to(s.tile_rows * (out_ld() + kSumLanes + 2) * 4, 64); }
};

/// The state of a tile from step to step.
struct TileState {
  float *out, *sum, *base, *top;
  TileState(char* memory, const ForwardSplit& plan)
      : out(reinterpret_cast<float*>(memory)),
        sum(out + plan.s.tile_rows * plan.out_ld()),
        base(sum + plan.s.tile_rows * kSumLanes),
        top(base + plan.s.tile_rows) {}
};

class Forward {
 public:
  Forward(const Attention& a, const StridedView& out, float* log_sum, float* max, char* workspace)
      : a_(a), out_(out), log_sum_(log_sum), max_(max), workspace_(workspace), plan_(a), s_(plan_.s) {
    WEFT_CHECK(out.shape == Shape({s_.batch, s_.heads, s_.q_len, s_.v_dim}) &&
                   (out.dtype == a.q.dtype || out.dtype == kFloat32),
               "attention: out is ", out.dtype, " ", out.shape, "; need ", a.q.dtype, " ",
               Shape({s_.batch, s_.heads, s_.q_len, s_.v_dim}));
    scaled_first_ = a.score || !(a.scale > 0);
    exponent_scale_ = scaled_first_ ? kLog2E : static_cast<float>(a.scale * 1.4426950408889634);
  }

  void run() {
    if (plan_.tiles == 0) return;
    if (!plan_.once) seen_ = visible_chunks(a_, s_, kPackKeys);
    if (plan_.by_head) {
      run_tasks(plan_.tasks, plan_.slots, [&](int64_t worker, int64_t task) { head(worker, task); });
      return;
    }
    if (!plan_.once) {
      const int64_t chunks = ceil_div(s_.kv_len, kPackKeys);
      run_tasks(s_.kv_batch * s_.kv_heads * chunks, plan_.slots, [&](int64_t worker, int64_t i) {
        if (seen_[static_cast<size_t>(i)]) pack_chunk(slot(worker), keys_of(i / chunks), i / chunks, i % chunks);
      });
    }
    const std::vector<int64_t> order = sorted_tiles();
    run_tasks(plan_.tasks, plan_.slots, [&](int64_t worker, int64_t task) {
      const int64_t tile = order[task / plan_.pieces], piece = task % plan_.pieces;
      char* memory = plan_.pieces > 1 ? state_of(tile, piece) : slot(worker) + plan_.state;
      const RowBlock rows = block(tile);
      whole_tile(slot(worker), rows, keys_of(kv_head(tile)), piece_of(rows, piece), TileState(memory, plan_),
                 plan_.pieces > 1);
    });
    if (plan_.pieces > 1)
      run_tasks(plan_.tiles, plan_.slots, [&](int64_t worker, int64_t tile) { merge(slot(worker), tile); });
  }

 private:
  char* slot(int64_t worker) const { return workspace_ + worker * plan_.slot_bytes; }
  char* keys_of(int64_t kv_head) const { return workspace_ + plan_.keys + kv_head * (plan_.k_bytes + plan_.v_bytes); }
  char* state_of(int64_t tile, int64_t piece) const {
    return workspace_ + plan_.states + (tile * plan_.pieces + piece) * plan_.state_bytes();
  }
  // Splits a tile's visible keys into equal parts; no part is too small to be worth merging.
  KeyRange piece_of(const RowBlock& rows, int64_t piece) const {
    if (plan_.pieces == 1) return {0, s_.kv_len};
    const KeyRange all = visible_span(a_, s_, rows);
    const int64_t keys = std::max(up_to(ceil_div(all.end - all.begin, plan_.pieces), kTileKeys), kLeastPiece);
    const int64_t begin = std::min(all.end, all.begin + piece * keys);
    return {begin, std::min(all.end, begin + keys)};
  }
  RowBlock block(int64_t tile) const {
    const int64_t q0 = tile % plan_.q_blocks * s_.tile_rows, group = tile / plan_.q_blocks % plan_.head_blocks;
    const int64_t head = tile / plan_.q_blocks / plan_.head_blocks, first = group * plan_.tile_heads;
    return {head / s_.kv_heads, head % s_.kv_heads * s_.group + first, std::min(plan_.tile_heads, s_.group - first), q0,
            std::min(s_.tile_rows, s_.q_len - q0)};
  }
  int64_t kv_head(int64_t tile) const {
    const int64_t head = tile / plan_.q_blocks / plan_.head_blocks;
    return (s_.kv_batch == 1 ? 0 : head / s_.kv_heads) * s_.kv_heads + head % s_.kv_heads;
  }

  // Tiles are ordered by head, so that a head's keys stay in the caches; in each head, the longest tiles come first.
  std::vector<int64_t> sorted_tiles() const {
    std::vector<int64_t> order(plan_.tiles);
    for (int64_t i = 0; i < plan_.tiles; ++i) order[i] = i;
    if (!a_.blocks) return order;
    std::vector<int64_t> work(plan_.tiles);
    for (int64_t i = 0; i < plan_.tiles; ++i) work[i] = visible_keys(a_, s_, block(i));
    const int64_t per_head = plan_.q_blocks * plan_.head_blocks;
    for (int64_t i = 0; i < plan_.tiles; i += per_head)
      std::stable_sort(order.begin() + i, order.begin() + i + per_head,
                       [&](int64_t x, int64_t y) { return work[x] > work[y]; });
    return order;
  }

  // Keys of a batch entry as one matrix: in place, or gathered from their pages.
  HeadMatrix gathered(char* memory, const StridedView& v, int64_t b, int64_t h, int64_t first, int64_t count) const {
    KeyRun run = key_run(a_, b, first, count);
    if (run.count == count) return rows_of(v, s_.type, run.entry, h, run.row, count);
    char* to = memory + plan_.together;
    const int64_t bytes = v.shape[3] * s_.item;
    for (int64_t done = 0; done < count; done += run.count) {
      run = key_run(a_, b, first + done, count - done);
      for (int64_t i = 0; i < run.count; ++i, to += bytes) {
        const char* from = at(v, run.entry, h, run.row + i);
        if (v.strides[3] == 1) {
          std::memcpy(to, from, static_cast<size_t>(bytes));
        } else {
          for (int64_t d = 0; d < v.shape[3]; ++d)
            std::memcpy(to + d * s_.item, from + d * v.strides[3] * s_.item, static_cast<size_t>(s_.item));
        }
      }
    }
    return {memory + plan_.together, s_.type, count, v.shape[3], v.shape[3], 1};
  }

  // Packs `count` keys starting at `first` to key `place` of `to`.
  void pack(char* memory, char* to, int64_t b, int64_t h, int64_t first, int64_t count, int64_t place) const {
    const GemmKernel& g = *s_.g;
    const int64_t k_panel = s_.panel(g.nr, s_.dim), v_panel = s_.panel(g.nr, plan_.packed_keys);
    const HeadMatrix k = gathered(memory, a_.k, b, h, first, count);
    g.pack_b({k.data, s_.type, k.row_stride, k.column_stride, count, s_.dim, to + place / g.nr * k_panel, k_panel});
    const HeadMatrix v = gathered(memory, a_.v, b, h, first, count);
    g.pack_b({v.data, s_.type, v.column_stride, v.row_stride, s_.v_dim, count,
              to + plan_.k_bytes + place * g.nr * g.size, v_panel});
  }
  void pack_chunk(char* memory, char* to, int64_t head, int64_t chunk) const {
    const int64_t first = chunk * kPackKeys;
    pack(memory, to, head / s_.kv_heads, head % s_.kv_heads, first, std::min(kPackKeys, s_.kv_len - first), first);
  }

  // Computes all tiles of a (batch, kv head).
  void head(int64_t worker, int64_t task) const {
    char* memory = slot(worker);
    char* keys = memory + plan_.slot_keys;
    const int64_t per_head = plan_.q_blocks * plan_.head_blocks;
    const int64_t head = kv_head(task * per_head), chunks = ceil_div(s_.kv_len, kPackKeys);
    for (int64_t c = 0; c < chunks; ++c)
      if (seen_[static_cast<size_t>(head * chunks + c)]) pack_chunk(memory, keys, head, c);
    for (int64_t tile = task * per_head; tile < (task + 1) * per_head; ++tile)
      whole_tile(memory, block(tile), keys, {0, s_.kv_len}, TileState(memory + plan_.state, plan_), false);
  }

  // Computes a tile over some of its keys, and finishes it unless other pieces follow.
  void whole_tile(char* memory, const RowBlock& rows, const char* keys, KeyRange span, const TileState& state,
                  bool partial) const {
    pack_queries(memory, rows);
    steps(memory, rows, keys, span, state, false);
    if (partial) return;
    if (!finish(memory, rows, state) && has_mask(a_)) {
      // A masked value must not add 0 * infinity.
      steps(memory, rows, keys, span, state, true);
      finish(memory, rows, state);
    }
  }

  void merge(char* memory, int64_t tile) const {
    const RowBlock rows = block(tile);
    for (bool careful : {false, true}) {
      const TileState sum(state_of(tile, 0), plan_);
      for (int64_t piece = 0; piece < plan_.pieces; ++piece) {
        const TileState state(state_of(tile, piece), plan_);
        if (careful) {
          pack_queries(memory, rows);
          steps(memory, rows, keys_of(kv_head(tile)), piece_of(rows, piece), state, true);
        }
        if (piece > 0)
          s_.stages->merge(
              {rows.rows(), s_.v_dim, state.out, plan_.out_ld(), state.base, state.sum, state.top, exponent_scale_},
              sum.out, sum.base, sum.sum, sum.top);
      }
      if (finish(memory, rows, sum) || !has_mask(a_)) return;
    }
  }

  void pack_queries(char* memory, const RowBlock& rows) const {
    const GemmKernel& g = *s_.g;
    const int64_t panel = s_.panel(g.mr, s_.dim);
    GemmPack pack{at(a_.q, rows.batch, rows.head, rows.q0),
                  s_.type,
                  a_.q.strides[2],
                  a_.q.strides[3],
                  rows.rows(),
                  s_.dim,
                  memory + plan_.q,
                  panel};
    if (rows.heads > 1 || plan_.in_place) {
      char* to = memory + plan_.gathered;
      for (int64_t r = 0; r < rows.rows(); ++r) {
        const char* from = at(a_.q, rows.batch, rows.head + r / rows.queries, rows.q0 + r % rows.queries);
        for (int64_t d = 0; d < s_.dim; ++d, to += s_.item)
          std::memcpy(to, from + d * a_.q.strides[3] * s_.item, s_.item);
      }
      pack.from = memory + plan_.gathered, pack.line_stride = s_.dim, pack.k_stride = 1;
    }
    if (!plan_.in_place) g.pack_a(pack);
  }

  void steps(char* memory, const RowBlock& rows, const char* keys, KeyRange span, const TileState& state,
             bool careful) const {
    const int64_t n = rows.rows();
    std::fill(state.sum, state.sum + n * kSumLanes, 0.0f);
    std::fill(state.base, state.base + n, -kInf);
    std::fill(state.top, state.top + n, -kInf);
    bool first = true;
    for_key_steps(a_, rows, span.begin, span.end, reinterpret_cast<uint8_t*>(memory + plan_.bits),
                  [&](const KeyStep& k) {
                    step(memory, rows, keys, k, state, first, careful);
                    first = false;
                  });
    if (first) std::fill(state.out, state.out + n * plan_.out_ld(), 0.0f);
  }

  void step(char* memory, const RowBlock& rows, const char* keys, const KeyStep& k, const TileState& state, bool first,
            bool careful) const {
    const GemmKernel& g = *s_.g;
    const int64_t n = rows.rows(), ld = plan_.out_ld();
    float* scores = reinterpret_cast<float*>(memory + plan_.scores);
    char* p = s_.narrow ? memory + plan_.p : memory + plan_.scores;
    const int64_t k_panel = s_.panel(g.nr, s_.dim), v_panel = s_.panel(g.nr, plan_.packed_keys);

    const int64_t kv_head = rows.head / s_.group;
    if (a_.pages) check_pages(a_, rows, k);
    if (plan_.in_place) {
      KeyRun run{};
      for (int64_t j = 0; j < k.cols; j += run.count) {
        run = key_run(a_, rows.batch, k.kv0 + j, k.cols - j);
        s_.stages->row_scores({memory + plan_.gathered, s_.dim, n, at(a_.k, run.entry, kv_head, run.row),
                               a_.k.strides[2], run.count, s_.dim, s_.type, scores + j, kScoreLd});
      }
    } else if (plan_.once) {
      pack(memory, memory + plan_.slot_keys, rows.batch, kv_head, k.kv0, k.cols, 0);
      keys = memory + plan_.slot_keys;
    }
    const int64_t place = plan_.once ? 0 : k.kv0;
    GemmBlock product{};
    product.a = memory + plan_.q, product.a_stride = s_.panel(g.mr, s_.dim);
    product.b = keys + place / g.nr * k_panel, product.b_stride = k_panel;
    product.m = n, product.n = k.cols, product.k = s_.dim;
    product.to = scores, product.to_ld = kScoreLd, product.to_type = PanelType::f32, product.to_whole = true;
    if (!plan_.in_place) g.run(product);

    if (scaled_first_ && !a_.score) s_.stages->scale(scores, kScoreLd, n, k.cols, static_cast<float>(a_.scale));
    SoftmaxTile t{scores, kScoreLd, n, k.cols, k.bits, k.row_bytes};
    if (a_.dropout.p > 0) {
      uint8_t* keep = reinterpret_cast<uint8_t*>(memory + plan_.keep);
      keep_points(a_, s_, rows, k, keep);
      t.keep = keep, t.keep_scale = static_cast<float>(1 / (1 - a_.dropout.p));
    }
    t.scale = exponent_scale_;
    t.base = state.base, t.sum = state.sum, t.top = max_ || log_sum_ ? state.top : nullptr;
    t.out = first ? nullptr : state.out, t.out_ld = ld, t.out_cols = s_.padded(s_.v_dim);
    t.p = p, t.p_ld = s_.narrow ? kNarrowLd : kScoreLd;
    if (a_.score) {
      for_strips(rows, [&](int64_t head, int64_t row, int64_t count) {
        const SoftmaxTile strip = strip_of(t, row, count, s_.p_line());
        a_.score->forward(a_.score->context, score_tile(a_, rows, k, 0, head, row, count), scores + row * kScoreLd);
        s_.stages->softmax(strip);
      });
    } else {
      s_.stages->softmax(t);
    }

    if (careful) return add_seen(p, rows, k, state, first);
    if (plan_.in_place) {
      if (first) std::fill(state.out, state.out + n * ld, 0.0f);
      KeyRun run{};
      for (int64_t j = 0; j < k.cols; j += run.count) {
        run = key_run(a_, rows.batch, k.kv0 + j, k.cols - j);
        s_.stages->row_values({p + j * (s_.narrow ? 2 : 4), t.p_ld, n, at(a_.v, run.entry, kv_head, run.row),
                               a_.v.strides[2], run.count, s_.v_dim, s_.type, state.out, ld});
      }
      return;
    }
    GemmBlock sum{};
    sum.a = p, sum.a_line = s_.p_line();
    sum.b = keys + plan_.k_bytes + place * g.nr * g.size, sum.b_stride = v_panel;
    sum.m = n, sum.n = s_.v_dim, sum.k = k.cols;
    sum.from = first ? nullptr : state.out, sum.from_ld = ld;
    sum.to = state.out, sum.to_ld = ld, sum.to_type = PanelType::f32, sum.to_whole = true;
    g.run(sum);
  }

  // A strip of a tile's rows.
  static SoftmaxTile strip_of(SoftmaxTile t, int64_t first, int64_t count, int64_t p_line) {
    t.scores += first * t.ld;
    t.rows = count;
    if (t.bits) t.bits += first * t.row_bytes;
    if (t.keep) t.keep += first * (kTileKeys / 8);
    t.base += first, t.sum += first * kSumLanes;
    if (t.top) t.top += first;
    if (t.out) t.out += first * t.out_ld;
    t.p = static_cast<char*>(t.p) + first * p_line;
    return t;
  }

  // Adds p v to out where p is not 0.
  void add_seen(const char* p, const RowBlock& rows, const KeyStep& k, const TileState& state, bool first) const {
    const int64_t b = rows.batch, h = rows.head / s_.group, step = a_.v.strides[3];
    for (int64_t r = 0; r < rows.rows(); ++r, p += s_.p_line()) {
      float* out = state.out + r * plan_.out_ld();
      if (first) std::fill(out, out + plan_.out_ld(), 0.0f);
      for (int64_t j = 0; j < k.cols; ++j) {
        const float x = s_.narrow ? static_cast<float>(reinterpret_cast<const bfloat16*>(p)[j])
                                  : reinterpret_cast<const float*>(p)[j];
        if (x == 0) continue;
        auto add = [&]<class T>(const T* v) {
          for (int64_t d = 0; d < s_.v_dim; ++d) out[d] += x * static_cast<float>(v[d * step]);
        };
        const KeyRun run = key_run(a_, b, k.kv0 + j, 1);
        const void* v = at(a_.v, run.entry, h, run.row);
        s_.type == PanelType::f32    ? add(static_cast<const float*>(v))
        : s_.type == PanelType::bf16 ? add(static_cast<const bfloat16*>(v))
                                     : add(static_cast<const float16*>(v));
      }
    }
  }

  bool finish(char* memory, const RowBlock& rows, const TileState& state) const {
    bool finite = true;
    const bool direct = out_.strides[3] == 1;
    const int64_t item = itemsize(out_.dtype);
    for (int64_t i = 0; i < rows.heads; ++i) {
      const int64_t first = i * rows.queries, head = rows.head + i;
      const int64_t line = (rows.batch * s_.heads + head) * s_.q_len + rows.q0;
      char* to = at(out_, rows.batch, head, rows.q0);
      char* here = direct ? to : memory + plan_.row;
      const int64_t here_ld = direct ? out_.strides[2] : s_.v_dim;
      finite &= s_.stages->finish({rows.queries, s_.v_dim, state.out + first * plan_.out_ld(), plan_.out_ld(),
                                   state.base + first, state.sum + first * kSumLanes, state.top + first,
                                   exponent_scale_, here, here_ld, panel_type(out_.dtype),
                                   log_sum_ ? log_sum_ + line : nullptr, max_ ? max_ + line : nullptr});
      if (direct) continue;
      for (int64_t r = 0; r < rows.queries; ++r)
        for (int64_t d = 0; d < s_.v_dim; ++d)
          std::memcpy(to + (r * out_.strides[2] + d * out_.strides[3]) * item, here + (r * s_.v_dim + d) * item, item);
    }
    return finite;
  }

  const Attention& a_;
  const StridedView& out_;
  float *log_sum_, *max_;
  char* workspace_;
  const ForwardSplit plan_;
  const AttentionSizes& s_;
  std::vector<uint8_t> seen_;  // chunks of kPackKeys keys
  bool scaled_first_;
  float exponent_scale_;
};

}  // namespace
}  // namespace internal

void attention(const Attention& a, const StridedView& out, float* log_sum, float* max, void* workspace) {
  internal::Forward(a, out, log_sum, max, static_cast<char*>(workspace)).run();
}

int64_t attention_workspace(const Attention& a) { return internal::ForwardSplit(a).bytes; }

}  // namespace weft::kernels
