#include "ops/attention/masks/block_mask_build.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "framework/base/hash.h"
#include "framework/base/thread_pool.h"
#include "ops/attention/masks/mask_analysis.h"
#include "ops/attention/masks/mask_key.h"

namespace weft::internal {

using kernels::BlockRange;
constexpr int32_t kFull = BlockRange::kFull, kUnknown = BlockRange::kUnknown;

namespace {

// Blocks [first, last) of one row, in the order of the descent: ascending in each row.
struct BlockRun {
  int32_t row, first, last, tile;
};

// A horizontal strip of one batch entry and head, and the blocks found in it.
struct Strip {
  int64_t b = 0, h = 0, begin = 0, end = 0;  // rows of blocks
  std::vector<BlockRun> pieces;  // tile: below 0 as in BlockRange, otherwise global or, from `first_new` on, local
  int32_t first_new = 0;
  std::vector<uint64_t> tiles, hashes;  // local tiles
};

class Descent {
 public:
  Descent(const MaskProgram& program, const MaskProgram& dense, TableBounds& bounds, const BlockBuildOptions& o,
          const TilePool& pool, Strip& strip)
      : dense_(dense),
        o_(o),
        pool_(pool),
        strip_(strip),
        analysis_(program, bounds, strip.b, strip.h),
        keys_(program),
        local_(o.block_q * o.block_kv / 64, o.max_tile_bytes),
        tile_(o.block_q * o.block_kv / 64) {
    strip.first_new = static_cast<int32_t>(pool.size());
  }

  void run() {
    const int64_t columns = (o_.kv_len + o_.block_kv - 1) / o_.block_kv;
    if (columns > 0) visit(strip_.begin, strip_.end, 0, columns);
    strip_.tiles = std::move(local_.tiles);
  }

 private:
  static int64_t half(int64_t n) { return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(n))) / 2; }

  void visit(int64_t r0, int64_t r1, int64_t c0, int64_t c1) {
    const int64_t q0 = r0 * o_.block_q, q1 = std::min(r1 * o_.block_q, o_.q_len);
    const int64_t kv0 = c0 * o_.block_kv, kv1 = std::min(c1 * o_.block_kv, o_.kv_len);
    const MaskRange& m = analysis_.over(q0, q1, kv0, kv1);
    if (m.constant()) {
      if (m.lo) emit(r0, r1, c0, c1, kFull);
      return;
    }
    const int64_t rows = r1 - r0, cols = c1 - c0;
    if (rows == 1 && cols == 1) {
      const int32_t tile = block(q0, q1, kv0, kv1);
      if (tile != kEmptyBlock) emit(r0, r1, c0, c1, tile);
      return;
    }
    const int64_t rm = rows >= 2 * cols || cols < 2 * rows ? r0 + half(rows) : r1;
    const int64_t cm = cols >= 2 * rows || rows < 2 * cols ? c0 + half(cols) : c1;
    visit(r0, rm, c0, cm);
    if (cm < c1) visit(r0, rm, cm, c1);
    if (rm < r1) visit(rm, r1, c0, cm);
    if (rm < r1 && cm < c1) visit(rm, r1, cm, c1);
  }

  void emit(int64_t r0, int64_t r1, int64_t c0, int64_t c1, int32_t tile) {
    for (int64_t r = r0; r < r1; ++r)
      strip_.pieces.push_back({static_cast<int32_t>(r), static_cast<int32_t>(c0), static_cast<int32_t>(c1), tile});
  }

  // The kind of a block that the analysis leaves open. A block of the same name has the same kind; otherwise the bits
  // show it.
  int32_t block(int64_t q0, int64_t q1, int64_t kv0, int64_t kv1) {
    const int64_t rows = q1 - q0, cols = kv1 - kv0;
    const int32_t name = rows == o_.block_q && cols == o_.block_kv ? keys_.name(analysis_, q0, kv0) : -1;
    if (name >= 0 && name < static_cast<int32_t>(known_.size()) && known_[name] != kUnseen) return known_[name];
    const int64_t row_words = o_.block_kv / 64;
    if (rows < o_.block_q) std::fill(tile_.begin(), tile_.end(), 0);
    dense_.fill({strip_.b, strip_.h, q0, kv0, rows, cols}, reinterpret_cast<uint8_t*>(tile_.data()), row_words * 8);
    int32_t result = classify_tile(tile_.data(), row_words, rows, cols);
    if (result == kUnknown) {
      const uint64_t hash = hash_bytes(tile_.data(), tile_.size() * 8);
      result = pool_.find(tile_.data(), hash);
      if (result < 0) {
        const int64_t before = local_.size();
        const int32_t local = local_.insert(tile_.data(), hash);
        result = local < 0 ? kUnknown : strip_.first_new + local;
        if (local_.size() > before) strip_.hashes.push_back(hash);
      }
    }
    if (name >= 0) {
      if (name >= static_cast<int32_t>(known_.size()))
        known_.resize(std::max<size_t>(name + 1, known_.size() * 2), kUnseen);
      known_[name] = result;
    }
    return result;
  }

  static constexpr int32_t kUnseen = -4;
  const MaskProgram& dense_;
  const BlockBuildOptions& o_;
  const TilePool& pool_;
  Strip& strip_;
  MaskAnalysis analysis_;
  MaskKeys keys_;
  TilePool local_;
  std::vector<uint64_t> tile_;
  std::vector<int32_t> known_;  // index: name
};

void append_range(std::vector<BlockRange>& ranges, size_t row_begin, BlockRange r) {
  if (ranges.size() > row_begin && ranges.back().last == r.first && ranges.back().tile == r.tile) {
    ranges.back().last = r.last;
  } else {
    ranges.push_back(r);
  }
}

// Adds a strip's tiles to the pool and its rows to the lists.
void append_strip(Strip& s, TilePool& pool, int64_t tile_words, BlockLists& out) {
  std::vector<int32_t> global(s.hashes.size());
  for (size_t i = 0; i < global.size(); ++i) global[i] = pool.insert(s.tiles.data() + i * tile_words, s.hashes[i]);
  const int64_t rows = s.end - s.begin;
  std::vector<int32_t> at(rows + 1);  // counting sort, stable
  for (const BlockRun& p : s.pieces) ++at[p.row - s.begin + 1];
  for (int64_t r = 0; r < rows; ++r) at[r + 1] += at[r];
  std::vector<BlockRange> sorted(s.pieces.size());
  std::vector<int32_t> next(at.begin(), at.end() - 1);
  for (const BlockRun& p : s.pieces) {
    const int32_t tile = p.tile >= s.first_new ? global[p.tile - s.first_new] : p.tile;
    sorted[next[p.row - s.begin]++] = {p.first, p.last, tile};
  }
  for (int64_t r = 0; r < rows; ++r) {
    const size_t begin = out.ranges.size();
    for (int32_t i = at[r]; i < at[r + 1]; ++i) append_range(out.ranges, begin, sorted[i]);
    out.offsets.push_back(static_cast<int64_t>(out.ranges.size()));
  }
  s = Strip();
}

double count_bits(const uint8_t* bytes, int64_t n) {
  int64_t bits = 0;
  for (int64_t i = 0; i < n; ++i) bits += std::popcount(bytes[i]);
  return static_cast<double>(bits);
}

}  // namespace

int64_t BlockLists::bytes() const {
  return static_cast<int64_t>(offsets.size() * sizeof(int64_t) + ranges.size() * sizeof(BlockRange) +
                              tiles.size() * sizeof(uint64_t));
}

kernels::BlockMaskView BlockLists::view() const {
  return {.batch = batch,
          .heads = heads,
          .q_len = q_len,
          .kv_len = kv_len,
          .block_q = block_q,
          .block_kv = block_kv,
          .offsets = offsets.data(),
          .ranges = ranges.data(),
          .tiles = reinterpret_cast<const uint8_t*>(tiles.data())};
}

int32_t classify_tile(const uint64_t* tile, int64_t row_words, int64_t rows, int64_t cols) {
  uint64_t any = 0, gaps = 0;
  for (int64_t w = 0; w < row_words; ++w) {
    const int64_t left = cols - w * 64;
    const uint64_t inside = left >= 64 ? ~uint64_t{0} : left <= 0 ? 0 : (uint64_t{1} << left) - 1;
    for (int64_t r = 0; r < rows; ++r) {
      any |= tile[r * row_words + w] & inside;
      gaps |= ~tile[r * row_words + w] & inside;
    }
  }
  return !any ? kEmptyBlock : !gaps ? kFull : kUnknown;
}

int32_t TilePool::find(const uint64_t* tile, uint64_t hash) const {
  if (slots_.empty()) return -1;
  const size_t mask = slots_.size() - 1;
  for (size_t i = hash & mask; slots_[i].second >= 0; i = (i + 1) & mask)
    if (slots_[i].first == hash && !std::memcmp(tiles.data() + slots_[i].second * words_, tile, words_ * 8))
      return slots_[i].second;
  return -1;
}

int32_t TilePool::insert(const uint64_t* tile, uint64_t hash) {
  const int32_t found = find(tile, hash);
  if (found >= 0) return found;
  const int64_t n = size();
  if (n >= max_) return kUnknown;
  auto place = [&](std::pair<uint64_t, int32_t> e) {
    size_t i = e.first & (slots_.size() - 1);
    while (slots_[i].second >= 0) i = (i + 1) & (slots_.size() - 1);
    slots_[i] = e;
  };
  if (slots_.size() < 2 * static_cast<size_t>(n + 1)) {
    std::vector<std::pair<uint64_t, int32_t>> old(std::max<size_t>(16, slots_.size() * 2), {0, -1});
    old.swap(slots_);
    for (const auto& e : old)
      if (e.second >= 0) place(e);
  }
  place({hash, static_cast<int32_t>(n)});
  tiles.insert(tiles.end(), tile, tile + words_);
  return static_cast<int32_t>(n);
}

BlockLists build_block_lists(const MaskProgram& program, const MaskProgram& dense, const BlockBuildOptions& o) {
  BlockLists out;
  const uint8_t deps = o.independent ? program.deps() : uint8_t{0xff};
  out.batch = deps & kDepB ? o.batch : 1;
  out.heads = deps & kDepH ? o.heads : 1;
  out.q_len = o.q_len;
  out.kv_len = o.kv_len;
  out.block_q = o.block_q;
  out.block_kv = o.block_kv;
  const int64_t rows = out.q_blocks(), words = out.tile_words();
  out.offsets.reserve(out.batch * out.heads * rows + 1);
  out.offsets.push_back(0);
  // Strips depend on the shape only, and their results are joined in order: the same lists for any thread count.
  const int64_t strip =
      std::clamp<int64_t>(static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>((rows + 7) / 8))), 16, 1024);
  const int64_t per_head = (rows + strip - 1) / strip, total = out.batch * out.heads * per_head;
  constexpr int64_t kWave = 16;
  TableBounds bounds;
  TilePool pool(words, o.max_tile_bytes);
  std::vector<Strip> wave;
  for (int64_t first = 0; first < total; first += kWave) {
    const int64_t n = std::min(kWave, total - first);
    wave.assign(n, Strip());
    parallel_for(n, [&](int64_t i) {
      const int64_t t = first + i, head = t / per_head;
      Strip& s = wave[i];
      s.b = head / out.heads;
      s.h = head % out.heads;
      s.begin = t % per_head * strip;
      s.end = std::min(rows, s.begin + strip);
      Descent(program, dense, bounds, o, pool, s).run();
    });
    for (Strip& s : wave) append_strip(s, pool, words, out);
  }
  out.tiles = std::move(pool.tiles);
  out.ranges.shrink_to_fit();
  out.tiles.shrink_to_fit();
  return out;
}

BlockColumns transpose_lists(const BlockLists& lists) {
  // Each row touches only the columns whose kind changes, so the cost depends on the boundary's length.
  const int64_t rows = lists.q_blocks(), cols = lists.kv_blocks(), images = lists.batch * lists.heads;
  struct ColumnRange {
    int64_t column;
    BlockRange range;
  };
  std::vector<ColumnRange> runs;
  std::vector<std::pair<int32_t, int32_t>> open(cols);  // first row and tile
  BlockColumns out;
  out.offsets.assign(images * cols + 1, 0);
  const BlockRange* none = nullptr;
  for (int64_t image = 0; image < images; ++image) {
    const BlockRange *above = none, *above_end = none;
    for (int64_t r = 0; r <= rows; ++r) {
      const BlockRange *here = none, *here_end = none;
      if (r < rows) {
        here = lists.ranges.data() + lists.offsets[image * rows + r];
        here_end = lists.ranges.data() + lists.offsets[image * rows + r + 1];
      }
      const BlockRange *a = above, *h = here;
      int32_t c = 0;
      while (a != above_end || h != here_end) {
        constexpr int32_t kFar = INT32_MAX;
        const bool in_a = a != above_end && a->first <= c, in_h = h != here_end && h->first <= c;
        int32_t next = kFar;
        if (a != above_end) next = std::min(next, in_a ? a->last : a->first);
        if (h != here_end) next = std::min(next, in_h ? h->last : h->first);
        const int32_t was = in_a ? a->tile : kEmptyBlock, is = in_h ? h->tile : kEmptyBlock;
        if (was != is) {
          for (int32_t i = c; i < next; ++i) {
            if (was != kEmptyBlock) runs.push_back({image * cols + i, {open[i].first, static_cast<int32_t>(r), was}});
            open[i] = {static_cast<int32_t>(r), is};
          }
        }
        c = next;
        if (in_a && a->last == c) ++a;
        if (in_h && h->last == c) ++h;
      }
      above = here;
      above_end = here_end;
    }
  }
  for (const ColumnRange& r : runs) ++out.offsets[r.column + 1];
  for (size_t i = 1; i < out.offsets.size(); ++i) out.offsets[i] += out.offsets[i - 1];
  out.ranges.resize(runs.size());
  std::vector<int64_t> next(out.offsets.begin(), out.offsets.end() - 1);
  for (const ColumnRange& r : runs) out.ranges[next[r.column]++] = r.range;
  return out;
}

VisibleScores visible_scores(const kernels::BlockMaskView& view) {
  const int64_t rows = view.batch * view.heads * view.q_blocks(), tile_bytes = view.block_q * view.block_kv / 8;
  std::vector<double> in_tile;  // visible scores of a tile, counted at its first use
  VisibleScores all;
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t q0 = row % view.q_blocks() * view.block_q, height = std::min(view.block_q, view.q_len - q0);
    for (int64_t i = view.offsets[row]; i < view.offsets[row + 1]; ++i) {
      const BlockRange& r = view.ranges[i];
      if (r.tile >= 0) {
        const auto tile = static_cast<size_t>(r.tile);
        if (tile >= in_tile.size()) in_tile.resize(tile + 1, -1);
        if (in_tile[tile] < 0) in_tile[tile] = count_bits(view.tiles + r.tile * tile_bytes, tile_bytes);
        all.count += in_tile[tile] * (r.last - r.first);
      } else {
        all.count +=
            static_cast<double>(height * (std::min(r.last * view.block_kv, view.kv_len) - r.first * view.block_kv));
        all.at_most |= r.tile == kUnknown;
      }
    }
  }
  return all;
}

MaskCount count_mask(const kernels::BlockMaskView& view, const kernels::MaskFill* fill, int64_t batch, int64_t heads,
                     int64_t kv_batch, int64_t kv_heads) {
  const int64_t words = view.block_kv / 64, row_bytes = view.block_kv / 8, columns = view.kv_blocks(),
                tile_bytes = view.block_q * row_bytes;
  // Bits of the keys that are seen: a set for each image of keys for which the mask differs.
  const int64_t sets_b = kv_batch == 1 ? 1 : view.batch, sets_h = view.heads == 1 ? 1 : kv_heads;
  std::vector<uint64_t> seen(static_cast<size_t>(sets_b * sets_h * columns * words));
  std::vector<uint8_t> filled(static_cast<size_t>(fill ? tile_bytes : 0));
  double scores = 0;
  for (int64_t row = 0; row < view.batch * view.heads * view.q_blocks(); ++row) {
    const int64_t q0 = row % view.q_blocks() * view.block_q, height = std::min(view.block_q, view.q_len - q0);
    const int64_t b = row / view.q_blocks() / view.heads, h = row / view.q_blocks() % view.heads;
    const int64_t set = (sets_b == 1 ? 0 : b) * sets_h + (sets_h == 1 ? 0 : h / (heads / kv_heads));
    for (int64_t i = view.offsets[row]; i < view.offsets[row + 1]; ++i) {
      const BlockRange& r = view.ranges[i];
      for (int64_t block = r.first; block < r.last; ++block) {
        uint64_t* const keys = &seen[static_cast<size_t>((set * columns + block) * words)];
        const int64_t kv0 = block * view.block_kv, width = std::min(view.block_kv, view.kv_len - kv0);
        if (r.tile == BlockRange::kFull) {
          for (int64_t bit = 0; bit < width; bit += 64)
            keys[bit / 64] |= ~uint64_t{0} >> (64 - std::min<int64_t>(64, width - bit));
          scores += static_cast<double>(height * width);
          continue;
        }
        const uint8_t* tile = view.tiles + r.tile * tile_bytes;
        if (r.tile == kUnknown) {
          WEFT_BUG_IF(!fill, "count_mask: the bits of a block are not known");
          fill->run(fill->context, b, h, q0, kv0, height, width, filled.data(), row_bytes);
          tile = filled.data();
        }
        scores += count_bits(tile, height * row_bytes);
        for (int64_t q = 0; q < height; ++q)
          for (int64_t w = 0; w < words; ++w) {
            uint64_t bits;
            std::memcpy(&bits, tile + q * row_bytes + w * 8, 8);
            keys[w] |= bits;
          }
      }
    }
  }
  const double images = static_cast<double>(batch / view.batch * (heads / view.heads)),
               key_images = static_cast<double>(kv_batch * kv_heads / (sets_b * sets_h));
  return {scores * images, key_images * count_bits(reinterpret_cast<const uint8_t*>(seen.data()),
                                                   static_cast<int64_t>(seen.size() * sizeof(uint64_t)))};
}

}  // namespace weft::internal
