#include "ops/kernels/attention/attention_plan.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "framework/base/cpu.h"
#include "framework/base/error.h"
#include "framework/base/thread_pool.h"
#include "ops/kernels/products/gemm_plan.h"
#include "ops/kernels/tables.h"

namespace weft::kernels::internal {

AttentionSizes::AttentionSizes(const Attention& a) {
  const StridedView &q = a.q, &k = a.k, &v = a.v;
  WEFT_CHECK(q.shape.size() == 4 && k.shape.size() == 4 && v.shape.size() == 4, "attention: q ", q.shape, ", k ",
             k.shape, ", v ", v.shape, "; need 4 dims each");
  WEFT_CHECK(q.dtype == k.dtype && q.dtype == v.dtype, "attention: dtypes are ", q.dtype, ", ", k.dtype, ", ", v.dtype,
             "; need one");
  WEFT_CHECK(q.dtype == kFloat32 || q.dtype == kBFloat16 || q.dtype == kFloat16, "attention: dtype is ", q.dtype,
             "; need f32, bf16 or f16");
  batch = q.shape[0], heads = q.shape[1], q_len = q.shape[2], dim = q.shape[3];
  kv_batch = k.shape[0], kv_heads = k.shape[1], kv_len = k.shape[2], v_dim = v.shape[3];
  const bool batch_fits = a.pages || kv_batch == batch || kv_batch == 1;
  WEFT_CHECK(batch_fits && v.shape[0] == kv_batch && v.shape[1] == kv_heads && v.shape[2] == kv_len &&
                 k.shape[3] == dim && kv_heads > 0 && heads % kv_heads == 0 && heads > 0 && dim > 0 && v_dim > 0,
             "attention: q ", q.shape, ", k ", k.shape, ", v ", v.shape,
             "; need [B, Hq, Sq, D], [B or 1, Hkv, Skv, D], [B or 1, Hkv, Skv, Dv], Hq a multiple of Hkv");
  group = heads / kv_heads;
  if (a.pages) kv_batch = batch, kv_len *= a.page_count;
  if (const BlockMaskView* m = a.blocks) {
    WEFT_CHECK(m->q_len == q_len && m->kv_len == kv_len, "attention: the block mask is for ", m->q_len, " x ",
               m->kv_len, " points; need ", q_len, " x ", kv_len);
    WEFT_CHECK((m->batch == 1 || m->batch == batch) && (m->heads == 1 || m->heads == heads),
               "attention: the block mask has ", m->batch, " batches and ", m->heads, " heads; need 1 or ", batch,
               ", and 1 or ", heads);
    WEFT_CHECK(m->block_q > 0 && m->block_kv > 0 && m->block_q % 64 == 0 && m->block_kv % 64 == 0,
               "attention: the block mask's blocks are ", m->block_q, " x ", m->block_kv, "; need multiples of 64");
  }
  WEFT_CHECK(a.dropout.p >= 0 && a.dropout.p < 1, "attention: dropout is ", a.dropout.p, "; need [0, 1)");
  constexpr int64_t kWideRows = kScoreTileRows, kNarrowRows = 64, kManyTiles = 32;
  static_assert(kTileKeys == kScoreTileCols);
  tile_rows = !has_mask(a) && batch * heads * ceil_div(q_len, kWideRows) >= kManyTiles ? kWideRows : kNarrowRows;
  item = itemsize(q.dtype);
  type = panel_type(q.dtype);
  g = &gemm_kernel(type);
  narrow = g->direct_type == PanelType::bf16;
  stages = narrow ? &amx::attention_stages() : &WEFT_SELECT(attention_stages)();
}

int64_t mask_row(const BlockMaskView& m, int64_t batch, int64_t head) {
  return ((m.batch == 1 ? 0 : batch) * m.heads + (m.heads == 1 ? 0 : head)) * m.q_blocks();
}

namespace {

uint32_t word(const uint8_t* p) {
  uint32_t w;
  std::memcpy(&w, p, 4);
  return w;
}

// Removes empty groups of 32 columns from both ends; passes no bits if all are set.
void emit(KeyStep k, int64_t rows, FunctionRef<void(const KeyStep&)> f) {
  const int64_t words = ceil_div(k.cols, 32);
  uint32_t any[kTileKeys / 32] = {}, all[kTileKeys / 32];
  std::fill(all, all + words, ~0u);
  if (k.cols % 32) all[words - 1] = (1u << k.cols % 32) - 1;
  uint32_t full[kTileKeys / 32];
  std::copy(all, all + words, full);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t w = 0; w < words; ++w) {
      const uint32_t bits = word(k.bits + r * k.row_bytes + 4 * w);
      any[w] |= bits;
      all[w] &= bits;
    }
  int64_t first = 0, last = words;
  while (first < last && !any[first]) ++first;
  while (first < last && !any[last - 1]) --last;
  if (first == last) return;
  k.cols = std::min(k.cols, last * 32) - first * 32;
  k.kv0 += first * 32;
  k.bits += first * 4;
  if (std::equal(all + first, all + last, full + first)) k.bits = nullptr;
  f(k);
}

}  // namespace

void key_step(const Attention& a, const RowBlock& rows, int64_t kv0, int64_t cols, int32_t tile, uint8_t* memory,
              FunctionRef<void(const KeyStep&)> f) {
  constexpr int64_t kRowBytes = kTileKeys / 8;
  if (tile == BlockRange::kFull) return f({kv0, cols, nullptr, 0});
  if (tile == BlockRange::kUnknown) {
    WEFT_CHECK(a.mask, "attention: the block mask has kUnknown blocks; need a mask");
    for (int64_t h = 0; h < rows.heads; ++h)
      a.mask->run(a.mask->context, rows.batch, rows.head + h, rows.q0, kv0, rows.queries, cols,
                  memory + h * rows.queries * kRowBytes, kRowBytes);
    return emit({kv0, cols, memory, kRowBytes}, rows.rows(), f);
  }
  const BlockMaskView& m = *a.blocks;
  const int64_t line = m.block_kv / 8;
  const uint8_t* bits = m.tiles + (tile * m.block_q + rows.q0 % m.block_q) * line + kv0 % m.block_kv / 8;
  if (rows.heads == 1) return emit({kv0, cols, bits, line}, rows.queries, f);
  for (int64_t r = 0; r < rows.rows(); ++r)
    std::memcpy(memory + r * kRowBytes, bits + r % rows.queries * line, ceil_div(cols, 64) * 8);
  emit({kv0, cols, memory, kRowBytes}, rows.rows(), f);
}

void for_key_steps(const Attention& a, const RowBlock& rows, int64_t begin, int64_t end, uint8_t* memory,
                   FunctionRef<void(const KeyStep&)> f) {
  if (!a.blocks) {
    for (int64_t at = begin; at < end; at += kTileKeys)
      key_step(a, rows, at, std::min(kTileKeys, end - at), a.mask ? BlockRange::kUnknown : BlockRange::kFull, memory,
               f);
    return;
  }
  const BlockMaskView& m = *a.blocks;
  const int64_t row = mask_row(m, rows.batch, rows.head) + rows.q0 / m.block_q;
  for (int64_t i = m.offsets[row]; i < m.offsets[row + 1]; ++i) {
    const BlockRange& r = m.ranges[i];
    const int64_t first = std::max(r.first * m.block_kv, begin), last = std::min(r.last * m.block_kv, end);
    for (int64_t at = first; at < last;) {
      // The bits belong to one block.
      const int64_t stop = r.tile >= 0 ? std::min(last, (at / m.block_kv + 1) * m.block_kv) : last;
      const int64_t cols = std::min(kTileKeys, stop - at);
      key_step(a, rows, at, cols, r.tile, memory, f);
      at += cols;
    }
  }
}

int64_t visible_keys(const Attention& a, const AttentionSizes& s, const RowBlock& rows) {
  if (!a.blocks) return s.kv_len;
  const BlockMaskView& m = *a.blocks;
  const int64_t row = mask_row(m, rows.batch, rows.head) + rows.q0 / m.block_q;
  int64_t keys = 0;
  for (int64_t i = m.offsets[row]; i < m.offsets[row + 1]; ++i)
    keys += std::min(m.ranges[i].last * m.block_kv, s.kv_len) - m.ranges[i].first * m.block_kv;
  return keys;
}

KeyRange visible_span(const Attention& a, const AttentionSizes& s, const RowBlock& rows) {
  if (!a.blocks) return {0, s.kv_len};
  const BlockMaskView& m = *a.blocks;
  const int64_t row = mask_row(m, rows.batch, rows.head) + rows.q0 / m.block_q;
  const int64_t first = m.offsets[row], last = m.offsets[row + 1];
  if (first == last) return {0, 0};
  return {m.ranges[first].first * m.block_kv, std::min(m.ranges[last - 1].last * m.block_kv, s.kv_len)};
}

std::vector<uint8_t> visible_chunks(const Attention& a, const AttentionSizes& s, int64_t unit) {
  const int64_t chunks = ceil_div(s.kv_len, unit);
  std::vector<uint8_t> seen(static_cast<size_t>(s.kv_batch * s.kv_heads * chunks), !a.blocks);
  if (!a.blocks) return seen;
  const BlockMaskView& m = *a.blocks;
  for (int64_t b = 0; b < s.batch; ++b)
    for (int64_t h = 0; h < s.heads; ++h) {
      if (m.heads == 1 && h % s.group) continue;
      uint8_t* here = &seen[static_cast<size_t>(((s.kv_batch == 1 ? 0 : b) * s.kv_heads + h / s.group) * chunks)];
      const int64_t row = mask_row(m, b, h);
      for (int64_t i = m.offsets[row]; i < m.offsets[row + m.q_blocks()]; ++i) {
        const int64_t first = m.ranges[i].first * m.block_kv / unit;
        const int64_t last = ceil_div(std::min(m.ranges[i].last * m.block_kv, s.kv_len), unit);
        std::fill(here + first, here + std::max(first, last), uint8_t{1});
      }
    }
  return seen;
}

KeyRun key_run(const Attention& a, int64_t batch, int64_t first, int64_t count) {
  if (!a.pages) return {batch, first, count};
  const int64_t size = a.k.shape[2], page = a.pages[batch * a.page_count + first / size], row = first % size;
  // A key without a page is masked (check_pages): any finite memory serves, and other memory is added with care.
  return {page < 0 || page >= a.k.shape[0] ? 0 : page, row, std::min(count, size - row)};
}

void check_pages(const Attention& a, const RowBlock& rows, const KeyStep& k) {
  const int64_t size = a.k.shape[2], pages = a.k.shape[0];
  for (int64_t at = 0; at < k.cols;) {
    const int64_t end = std::min(k.cols, at + size - (k.kv0 + at) % size);
    const int64_t page = a.pages[rows.batch * a.page_count + (k.kv0 + at) / size];
    for (; at < end && (page < 0 || page >= pages); ++at)
      for (int64_t r = 0; r < rows.rows(); ++r)
        WEFT_CHECK_AS(kOutOfRange, k.bits && !(k.bits[r * k.row_bytes + at / 8] >> at % 8 & 1), "attention: key ",
                      k.kv0 + at, " of batch entry ", rows.batch, " is visible, but page_table[", rows.batch, "][",
                      (k.kv0 + at) / size, "] is ", page, "; need a page of [0, ", pages, ")");
    at = end;
  }
}

HeadMatrix sanitised(const HeadMatrix& m, void* memory) {
  auto copy = [&]<class T>(T* to, uint32_t exponent) {
    const T* from = static_cast<const T*>(m.data);
    for (int64_t r = 0; r < m.rows; ++r)
      for (int64_t c = 0; c < m.columns; ++c) {
        const T x = from[r * m.row_stride + c * m.column_stride];
        *to++ = (x & exponent) == exponent ? T{0} : x;
      }
  };
  if (m.type == PanelType::f32)
    copy(static_cast<uint32_t*>(memory), 0x7f800000u);
  else
    copy(static_cast<uint16_t*>(memory), m.type == PanelType::bf16 ? 0x7f80u : 0x7c00u);
  return {memory, m.type, m.rows, m.columns, m.columns, 1};
}

int64_t worker_slots(int64_t tasks) { return std::max<int64_t>(1, std::min<int64_t>(tasks, max_threads())); }

void run_tasks(int64_t tasks, int64_t workers, FunctionRef<void(int64_t, int64_t)> f) {
  if (tasks <= 0) return;
  std::atomic<int64_t> next{0};
  parallel_for(workers, [&](int64_t worker) {
    for (int64_t task; (task = next.fetch_add(1, std::memory_order_relaxed)) < tasks;) f(worker, task);
  });
}

// keep_points with positions from a table: processes keys in runs of neighbours.
static void keep_placed(const Attention& a, const AttentionSizes& s, const RowBlock& rows, const KeyStep& k,
                        KeepRow row) {
  struct PlacedKeys {
    int64_t col, count, at;
  } runs[kTileKeys];
  const AttentionDropout& d = a.dropout;
  int64_t n = 0;
  for (int64_t j = 0; j < k.cols; ++j) {
    const int64_t at = d.kv[k.kv0 + j];
    if (n > 0 && runs[n - 1].at + runs[n - 1].count == at) {
      ++runs[n - 1].count;
    } else {
      runs[n++] = {j, 1, at};
    }
  }
  using Bits = unsigned __int128;
  static_assert(sizeof(Bits) == kTileKeys / 8);
  for (int64_t r = 0; r < rows.rows(); ++r) {
    const int64_t head = d.h[rows.head + r / rows.queries], q = d.q[rows.q0 + r % rows.queries];
    const int64_t first = ((d.b[rows.batch] * d.heads + head) * d.q_len + q) * d.kv_len;
    Bits all = 0;
    for (int64_t i = 0; i < n; ++i) {
      Bits bits = 0;
      KeepRow part = row;
      part.first = static_cast<uint64_t>(first + runs[i].at);
      part.cols = runs[i].count;
      part.bits = reinterpret_cast<uint8_t*>(&bits);
      s.stages->keep(part);
      if (runs[i].count < kTileKeys) bits &= (Bits{1} << runs[i].count) - 1;
      all |= bits << runs[i].col;
    }
    std::memcpy(row.bits + r * static_cast<int64_t>(sizeof(Bits)), &all, sizeof(Bits));
  }
}

void keep_points(const Attention& a, const AttentionSizes& s, const RowBlock& rows, const KeyStep& k, uint8_t* keep) {
  KeepRow row{a.dropout.seed, static_cast<uint32_t>(a.dropout.step), a.dropout.op_id, 0, k.cols, 0, keep};
  row.threshold = static_cast<uint32_t>(std::ceil(static_cast<double>(static_cast<float>(a.dropout.p)) * 0x1p24));
  if (a.dropout.kv) return keep_placed(a, s, rows, k, row);
  for (int64_t r = 0; r < rows.rows(); ++r, row.bits += kTileKeys / 8) {
    const int64_t head = rows.head + r / rows.queries, q = rows.q0 + r % rows.queries;
    row.first = static_cast<uint64_t>(((rows.batch * s.heads + head) * s.q_len + q) * s.kv_len + k.kv0);
    s.stages->keep(row);
  }
}

}  // namespace weft::kernels::internal
