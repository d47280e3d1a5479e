#include "ops/attention/masks/block_mask.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <mutex>
#include <ostream>

#include "framework/base/thread_pool.h"
#include "ops/attention/masks/block_mask_build.h"
#include "ops/core/creation.h"
#include "ops/core/indexing/index.h"
#include "ops/core/pointwise.h"

namespace weft {

using internal::BlockLists;
using kernels::BlockRange;

struct BlockMask::MaskData {
  int64_t batch = 1, heads = 1;  // as requested; the lists may store one of them for all
  BlockLists lists;
  MaskMod mask;
  std::shared_ptr<const internal::MaskProgram> program;  // for these lengths
  bool from_lists = false;
  bool traced = false;  // no program and no lists: the mask reads traced tensors
  mutable std::once_flag once;
  mutable internal::BlockColumns columns;
  mutable std::atomic<int64_t> column_bytes{0};
};

namespace {

constexpr const char* kExample = "e.g. create_block_mask(attention::causal(), std::nullopt, std::nullopt, 1024, 1024)";
constexpr int64_t kLongest = int64_t{1} << 36;

void check_sizes(const char* op, std::optional<int64_t> B, std::optional<int64_t> H, int64_t q_len, int64_t kv_len) {
  WEFT_CHECK(B.value_or(1) >= 1 && H.value_or(1) >= 1, op, ": B is ", B.value_or(1), " and H is ", H.value_or(1),
             "; need 1 or more, or std::nullopt where the mask is the same for all, ", kExample);
  WEFT_CHECK(q_len >= 0 && kv_len >= 0 && q_len <= kLongest && kv_len <= kLongest, op, ": Q_LEN is ", q_len,
             " and KV_LEN is ", kv_len, "; need lengths from 0 to 2^36, ", kExample);
}

void check_block_size(const char* op, const std::array<int64_t, 2>& s) {
  const auto good = [](int64_t n) { return n >= 64 && n % 64 == 0 && n <= 4096; };
  WEFT_CHECK(good(s[0]) && good(s[1]), op, ": block_size is {", s[0], ", ", s[1],
             "}; need multiples of 64 from 64 to 4096 for queries and keys, as in {.block_size = {128, 128}}");
}

void check_mask(const char* op, const MaskMod& m) {
  WEFT_CHECK(static_cast<bool>(m), op, ": mask_mod is empty; need a function of (b, h, q, kv), ", kExample);
}

// Keeps the tiles that the ranges use, in their order.
void keep_used_tiles(BlockLists& l, const std::vector<uint64_t>& from) {
  const int64_t words = l.tile_words();
  std::vector<int32_t> to(from.size() / words, -1);
  for (BlockRange& r : l.ranges) {
    if (r.tile < 0) continue;
    int32_t& t = to[r.tile];
    if (t < 0) {
      t = static_cast<int32_t>(l.tiles.size() / words);
      l.tiles.insert(l.tiles.end(), from.begin() + r.tile * words, from.begin() + (r.tile + 1) * words);
    }
    r.tile = t;
  }
}

// Converts ranges to lists of blocks per row: `counts` and `indices` of full blocks and of partial ones.
BlockMask::Lists lists_of(const std::vector<int64_t>& offsets, const std::vector<BlockRange>& ranges, int64_t batch,
                          int64_t heads, int64_t stored_batch, int64_t stored_heads, int64_t rows, int64_t cols) {
  std::vector<int32_t> count[2], index[2];
  for (int k = 0; k < 2; ++k) {
    count[k].assign(batch * heads * rows, 0);
    index[k].assign(batch * heads * rows * cols, 0);
  }
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t h = 0; h < heads; ++h)
      for (int64_t r = 0; r < rows; ++r) {
        const int64_t from = ((b % stored_batch) * stored_heads + h % stored_heads) * rows + r;
        const int64_t to = (b * heads + h) * rows + r;
        for (int64_t i = offsets[from]; i < offsets[from + 1]; ++i) {
          const int k = ranges[i].tile == BlockRange::kFull;
          for (int32_t c = ranges[i].first; c < ranges[i].last; ++c) index[k][to * cols + count[k][to]++] = c;
        }
      }
  const Shape counts{batch, heads, rows}, all{batch, heads, rows, cols};
  return {Tensor::from_vector<int32_t>(count[0], counts), Tensor::from_vector<int32_t>(index[0], all),
          Tensor::from_vector<int32_t>(count[1], counts), Tensor::from_vector<int32_t>(index[1], all)};
}

}  // namespace

const BlockMask::MaskData& BlockMask::data(const char* what) const {
  WEFT_CHECK_AS(kFailedPrecondition, data_ != nullptr, "BlockMask::", what,
                ": this block mask is empty; make one first, ", kExample);
  return *data_;
}

const BlockMask::MaskData& BlockMask::lists_for(const char* what) const {
  const MaskData& d = data(what);
  WEFT_CHECK_AS(
      kFailedPrecondition, !d.traced, "BlockMask::", what,
      ": the mask reads tensors of the function that is being captured, so its blocks are known only when the "
      "step runs; make the block mask outside, or leave it to flex_attention");
  return d;
}
bool BlockMask::traced() const { return data("traced").traced; }

BlockMask BlockMask::make(const MaskMod& mask, int64_t batch, int64_t heads, int64_t q_len, int64_t kv_len,
                          const BlockMaskOptions& options, bool from_lists) {
  auto d = std::make_shared<MaskData>();
  d->batch = batch;
  d->heads = heads;
  d->mask = mask;
  d->from_lists = from_lists;
  const Body body = internal::trace_mask(mask);
  for (const Tensor& t : body.lifted) d->traced = d->traced || t.is_traced();
  BlockMask m;
  if (d->traced) {
    d->lists.q_len = q_len;
    d->lists.kv_len = kv_len;
    m.data_ = std::move(d);
    return m;
  }
  const internal::MaskProgram program(body);
  d->program = std::make_shared<const internal::MaskProgram>(program.narrowed(batch, heads, q_len, kv_len));
  d->lists = internal::build_block_lists(program, *d->program,
                                         {.batch = batch,
                                          .heads = heads,
                                          .q_len = q_len,
                                          .kv_len = kv_len,
                                          .block_q = options.block_size[0],
                                          .block_kv = options.block_size[1],
                                          .max_tile_bytes = options.max_tile_bytes});
  m.data_ = std::move(d);
  return m;
}

BlockMask create_block_mask(const MaskMod& mask_mod, std::optional<int64_t> B, std::optional<int64_t> H, int64_t Q_LEN,
                            int64_t KV_LEN, const BlockMaskOptions& options, std::source_location loc) {
  internal::LineScope here(loc);
  check_mask("create_block_mask", mask_mod);
  check_sizes("create_block_mask", B, H, Q_LEN, KV_LEN);
  check_block_size("create_block_mask", options.block_size);
  return BlockMask::make(mask_mod, B.value_or(1), H.value_or(1), Q_LEN, KV_LEN, options, false);
}

Tensor create_mask(const MaskMod& mask_mod, std::optional<int64_t> B, std::optional<int64_t> H, int64_t Q_LEN,
                   int64_t KV_LEN, std::source_location loc) {
  internal::LineScope here(loc);
  check_mask("create_mask", mask_mod);
  check_sizes("create_mask", B, H, Q_LEN, KV_LEN);
  const int64_t batch = B.value_or(1), heads = H.value_or(1);
  const internal::MaskProgram program = internal::MaskProgram(mask_mod).narrowed(batch, heads, Q_LEN, KV_LEN);
  const Shape shape{batch, heads, Q_LEN, KV_LEN};
  checked_numel(shape, "create_mask");
  Tensor out = Tensor::empty({kBool, Device::cpu(), shape});
  uint8_t* to = out.view_for_kernel().as<uint8_t>();
  parallel_for(batch * heads * ((Q_LEN + 63) / 64), [&](int64_t task) {
    const int64_t strips = (Q_LEN + 63) / 64, head = task / strips, q0 = task % strips * 64;
    const int64_t rows = std::min<int64_t>(64, Q_LEN - q0);
    std::vector<uint8_t> bits(64 * 16);
    for (int64_t kv0 = 0; kv0 < KV_LEN; kv0 += 128) {
      const int64_t cols = std::min<int64_t>(128, KV_LEN - kv0);
      program.fill({head / heads, head % heads, q0, kv0, rows, cols}, bits.data(), 16);
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t c = 0; c < cols; ++c)
          to[(head * Q_LEN + q0 + r) * KV_LEN + kv0 + c] = bits[r * 16 + c / 8] >> c % 8 & 1;
    }
  });
  return out;
}

Tensor noop_mask(Index, Index, Index, Index) { return constant(int64_t{1}, kBool); }

Shape BlockMask::shape(Loc loc) const {
  internal::LineScope here(loc);
  const MaskData& d = data("shape");
  return {d.batch, d.heads, d.lists.q_len, d.lists.kv_len};
}
std::array<int64_t, 2> BlockMask::block_size(Loc loc) const {
  internal::LineScope here(loc);
  const MaskData& d = data("block_size");
  return {d.lists.block_q, d.lists.block_kv};
}
int64_t BlockMask::q_blocks(Loc loc) const {
  internal::LineScope here(loc);
  return data("q_blocks").lists.q_blocks();
}
int64_t BlockMask::kv_blocks(Loc loc) const {
  internal::LineScope here(loc);
  return data("kv_blocks").lists.kv_blocks();
}
const MaskMod& BlockMask::mask() const { return data("mask").mask; }
kernels::BlockMaskView BlockMask::view() const { return lists_for("view").lists.view(); }
kernels::MaskFill BlockMask::fill() const { return lists_for("fill").program->fill_hook(); }

int64_t BlockMask::bytes(Loc loc) const {
  internal::LineScope here(loc);
  const MaskData& d = lists_for("bytes");
  return d.lists.bytes() + d.column_bytes.load();
}

const internal::BlockColumns& BlockMask::columns() const {
  const MaskData& d = lists_for("columns");
  std::call_once(d.once, [&] {
    d.columns = internal::transpose_lists(d.lists);
    d.column_bytes =
        static_cast<int64_t>(d.columns.offsets.size() * sizeof(int64_t) + d.columns.ranges.size() * sizeof(BlockRange));
  });
  return d.columns;
}

double BlockMask::sparsity(Loc loc) const {
  internal::LineScope here(loc);
  const BlockLists& l = lists_for("sparsity").lists;
  if (numel() == 0) return 0;
  double seen = 0;
  const int64_t rows = l.q_blocks();
  for (int64_t r = 0; r + 1 < static_cast<int64_t>(l.offsets.size()); ++r) {
    const double height = static_cast<double>(std::min(l.block_q, l.q_len - r % rows * l.block_q));
    for (int64_t i = l.offsets[r]; i < l.offsets[r + 1]; ++i)
      seen += height *
              static_cast<double>(std::min(l.ranges[i].last * l.block_kv, l.kv_len) - l.ranges[i].first * l.block_kv);
  }
  return 100 * (1 - seen / (static_cast<double>(l.batch * l.heads) * static_cast<double>(l.q_len) *
                            static_cast<double>(l.kv_len)));
}

Tensor BlockMask::to_dense(Loc loc) const {
  internal::LineScope here(loc);
  const MaskData& d = lists_for("to_dense");
  const BlockLists& l = d.lists;
  const int64_t rows = l.q_blocks(), cols = l.kv_blocks();
  const Shape shape{d.batch, d.heads, rows, cols};
  std::vector<int32_t> out(shape.numel());
  for (int64_t image = 0; image < d.batch * d.heads; ++image) {
    const int64_t from = (image / d.heads % l.batch * l.heads + image % d.heads % l.heads) * rows;
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t i = l.offsets[from + r]; i < l.offsets[from + r + 1]; ++i)
        std::fill(out.begin() + (image * rows + r) * cols + l.ranges[i].first,
                  out.begin() + (image * rows + r) * cols + l.ranges[i].last, 1);
  }
  return Tensor::from_vector<int32_t>(out, shape);
}

BlockMask::Lists BlockMask::kv_lists(Loc loc) const {
  internal::LineScope here(loc);
  const MaskData& d = lists_for("kv_lists");
  const BlockLists& l = d.lists;
  return lists_of(l.offsets, l.ranges, d.batch, d.heads, l.batch, l.heads, l.q_blocks(), l.kv_blocks());
}

BlockMask::Lists BlockMask::q_lists(Loc loc) const {
  internal::LineScope here(loc);
  const MaskData& d = lists_for("q_lists");
  const BlockLists& l = d.lists;
  const internal::BlockColumns& c = columns();
  return lists_of(c.offsets, c.ranges, d.batch, d.heads, l.batch, l.heads, l.kv_blocks(), l.q_blocks());
}

BlockMask BlockMask::slice(int dim, int64_t begin, int64_t end, Loc loc) const {
  internal::LineScope here(loc);
  const MaskData& d = lists_for("slice");
  const BlockLists& l = d.lists;
  WEFT_CHECK_AS(kOutOfRange, dim >= 0 && dim < 3, "BlockMask::slice: dim is ", dim,
                "; need 0 (batch entries), 1 (heads) or 2 (blocks of queries)");
  const char* names[] = {"batch entries", "heads", "blocks of queries"};
  const int64_t extents[] = {d.batch, d.heads, l.q_blocks()};
  WEFT_CHECK_AS(kOutOfRange, begin >= 0 && begin < end && end <= extents[dim], "BlockMask: asked for ", names[dim],
                " [", begin, ", ", end, ") of a mask of shape ", shape(), " that has ", extents[dim],
                " of them; need 0 <= begin < end <= ", extents[dim]);
  auto out = std::make_shared<MaskData>();
  out->batch = dim == 0 ? end - begin : d.batch;
  out->heads = dim == 1 ? end - begin : d.heads;
  out->from_lists = d.from_lists;
  BlockLists& o = out->lists;
  o.batch = dim == 0 && l.batch > 1 ? end - begin : l.batch;
  o.heads = dim == 1 && l.heads > 1 ? end - begin : l.heads;
  o.block_q = l.block_q;
  o.block_kv = l.block_kv;
  o.kv_len = l.kv_len;
  o.q_len = dim == 2 ? std::min(end * l.block_q, l.q_len) - begin * l.block_q : l.q_len;
  const int64_t b0 = dim == 0 && l.batch > 1 ? begin : 0, h0 = dim == 1 && l.heads > 1 ? begin : 0;
  const int64_t r0 = dim == 2 ? begin : 0, rows = o.q_blocks();
  o.offsets.push_back(0);
  for (int64_t b = 0; b < o.batch; ++b)
    for (int64_t h = 0; h < o.heads; ++h) {
      const int64_t first = ((b + b0) * l.heads + h + h0) * l.q_blocks() + r0;
      for (int64_t r = first; r < first + rows; ++r) {
        o.ranges.insert(o.ranges.end(), l.ranges.begin() + l.offsets[r], l.ranges.begin() + l.offsets[r + 1]);
        o.offsets.push_back(static_cast<int64_t>(o.ranges.size()));
      }
    }
  keep_used_tiles(o, l.tiles);
  out->mask = [m = d.mask, dim, begin, shift = r0 * l.block_q](Index b, Index h, Index q, Index kv) {
    return m(dim == 0 ? Index(b + begin) : b, dim == 1 ? Index(h + begin) : h, shift ? Index(q + shift) : q, kv);
  };
  out->program = std::make_shared<const internal::MaskProgram>(
      internal::MaskProgram(out->mask).narrowed(out->batch, out->heads, o.q_len, o.kv_len));
  BlockMask m;
  m.data_ = std::move(out);
  return m;
}

BlockMask BlockMask::resize(int64_t q_len, int64_t kv_len, Loc loc) const {
  internal::LineScope here(loc);
  const MaskData& d = data("resize");
  const BlockLists& l = d.lists;
  check_sizes("BlockMask::resize", d.batch, d.heads, q_len, kv_len);
  try {
    return make(d.mask, d.batch, d.heads, q_len, kv_len, {.block_size = {l.block_q, l.block_kv}}, d.from_lists);
  } catch (const Error& e) {
    internal::fail(
        e.code(),
        str_cat("BlockMask::resize: cannot go from lengths ", l.q_len, " x ", l.kv_len, " to ", q_len, " x ", kv_len,
                d.from_lists ? ": the mask was made from lists of blocks, which do not define longer ones: " : ": ",
                e.what()));
  }
}

void BlockMask::check_fits(const char* op, int64_t batch, int64_t heads, int64_t q_len, int64_t kv_len) const {
  const MaskData& d = data("check_fits");
  const BlockLists& l = d.lists;
  WEFT_CHECK(l.q_len == q_len && l.kv_len == kv_len, op, ": block_mask is for lengths ", l.q_len, " x ", l.kv_len,
             " and q and k have ", q_len, " x ", kv_len, "; need equal lengths: block_mask.resize(", q_len, ", ",
             kv_len, "), or create_block_mask(mask, B, H, ", q_len, ", ", kv_len, ")");
  WEFT_CHECK((d.batch == 1 || d.batch == batch) && (d.heads == 1 || d.heads == heads), op, ": block_mask of shape ",
             shape(), " does not fit batch ", batch, " and ", heads, " query heads; need B of 1 or ", batch,
             " and H of 1 or ", heads, ": create_block_mask(mask, ", batch, ", ", heads, ", ", q_len, ", ", kv_len,
             ")");
}

static void check_list(const char* which, const Tensor& num, const Tensor& index, const Shape& want_num,
                       const Shape& want_index) {
  const auto whole = [](const Tensor& t) { return t.dtype() == kInt32 || t.dtype() == kInt64; };
  WEFT_CHECK(num.defined() && index.defined(), "BlockMask::from_kv_blocks: ", which, "num_blocks and ", which,
             "indices go together; got one of them; need both or none");
  WEFT_CHECK(whole(num) && whole(index) && num.shape() == want_num && index.shape() == want_index,
             "BlockMask::from_kv_blocks: ", which, "num_blocks is ", num.type(), " and ", which, "indices is ",
             index.type(), "; need integers of shapes [B, H, q blocks] = ", want_num,
             " and [B, H, q blocks, kv blocks] = ", want_index, ", as block_mask.kv_lists() gives them");
}

BlockMask BlockMask::from_kv_blocks(const Tensor& kv_num_blocks, const Tensor& kv_indices,
                                    const Tensor& full_kv_num_blocks, const Tensor& full_kv_indices,
                                    const FromBlocks& options, Loc loc) {
  internal::LineScope here(loc);
  constexpr const char* kOp = "BlockMask::from_kv_blocks";
  check_block_size(kOp, options.block_size);
  WEFT_CHECK(kv_num_blocks.defined() && kv_indices.defined() && kv_indices.dim() == 4, kOp, ": kv_indices is ",
             kv_indices.defined() ? str_cat(kv_indices.type()) : "undefined",
             "; need kv_num_blocks [B, H, q blocks] and kv_indices [B, H, q blocks, kv blocks]");
  const Shape all = kv_indices.shape();
  const int64_t batch = all[0], heads = all[1], rows = all[2], cols = all[3];
  check_list("kv_", kv_num_blocks, kv_indices, {batch, heads, rows}, all);
  const bool has_full = full_kv_num_blocks.defined() || full_kv_indices.defined();
  if (has_full) check_list("full_kv_", full_kv_num_blocks, full_kv_indices, {batch, heads, rows}, all);
  const int64_t bq = options.block_size[0], bkv = options.block_size[1];
  const std::array<int64_t, 2> lengths = options.seq_lengths.value_or(std::array<int64_t, 2>{rows * bq, cols * bkv});
  check_sizes(kOp, batch, heads, lengths[0], lengths[1]);
  WEFT_CHECK((lengths[0] + bq - 1) / bq == rows && (lengths[1] + bkv - 1) / bkv == cols, kOp, ": seq_lengths are ",
             lengths[0], " x ", lengths[1], " and the lists have ", rows, " x ", cols, " blocks of ", bq, " x ", bkv,
             "; need lengths of ", (rows - 1) * bq + 1, " to ", rows * bq, " and ", (cols - 1) * bkv + 1, " to ",
             cols * bkv);
  std::vector<uint8_t> kind(all.numel());  // 0 skipped, 1 partial, 2 full
  auto mark = [&](const Tensor& num, const Tensor& index, uint8_t k) {
    const std::vector<int64_t> n = num.to_vector<int64_t>(), at = index.to_vector<int64_t>();
    for (int64_t r = 0; r < static_cast<int64_t>(n.size()); ++r) {
      WEFT_CHECK_AS(kOutOfRange, n[r] >= 0 && n[r] <= cols, kOp, ": a row lists ", n[r], " blocks of ", cols,
                    "; need 0 to ", cols);
      for (int64_t i = 0; i < n[r]; ++i) {
        const int64_t c = at[r * cols + i];
        WEFT_CHECK_AS(kOutOfRange, c >= 0 && c < cols, kOp, ": block ", c, " of keys in row ", r,
                      " is out of range; need 0 <= block < ", cols);
        kind[r * cols + c] = k;
      }
    }
  };
  mark(kv_num_blocks, kv_indices, options.mask_mod ? 1 : 2);
  if (has_full) mark(full_kv_num_blocks, full_kv_indices, 2);
  const Tensor table = Tensor::from_vector<uint8_t>(kind, all);
  const MaskMod inner = options.mask_mod ? options.mask_mod : MaskMod(noop_mask);
  const MaskMod mask = [table, inner, bq, bkv](Index b, Index h, Index q, Index kv) {
    const Tensor k = table[b][h][floor_divide(q, bq)][floor_divide(kv, bkv)];
    return (k == 2) | ((k == 1) & inner(b, h, q, kv));
  };
  return make(mask, batch, heads, lengths[0], lengths[1], {.block_size = options.block_size}, true);
}

std::string BlockMask::to_string(int64_t limit, std::array<int64_t, 2> grid, Loc loc) const {
  internal::LineScope here(loc);
  const MaskData& d = lists_for("to_string");
  const BlockLists& l = d.lists;
  const int64_t rows = l.q_blocks(), cols = l.kv_blocks(), images = d.batch * d.heads;
  const auto step_of = [](int64_t n, int64_t cells) {
    return std::max<int64_t>(1, (n + std::max<int64_t>(cells, 1) - 1) / std::max<int64_t>(cells, 1));
  };
  const int64_t row_step = step_of(rows, grid[0]), col_step = step_of(cols, grid[1]);
  std::string s;
  for (int64_t image = 0; image < images; ++image) {
    if (image == limit) {
      s += str_cat("... ", images - limit, " more: to_string(", images, ") shows all, at(b, h) one of them\n");
      break;
    }
    s += str_cat("(", image / d.heads, ", ", image % d.heads, ")\n");
    const int64_t from = (image / d.heads % l.batch * l.heads + image % d.heads % l.heads) * rows;
    for (int64_t r0 = 0; r0 < rows; r0 += row_step) {
      const int64_t r1 = std::min(rows, r0 + row_step);
      std::vector<int64_t> full((cols + col_step - 1) / col_step), seen(full.size());
      for (int64_t i = l.offsets[from + r0]; i < l.offsets[from + r1]; ++i) {
        const BlockRange& r = l.ranges[i];
        for (int64_t c = r.first / col_step; c * col_step < r.last; ++c) {
          const int64_t n = std::min<int64_t>(r.last, (c + 1) * col_step) - std::max<int64_t>(r.first, c * col_step);
          seen[c] += n;
          if (r.tile == BlockRange::kFull) full[c] += n;
        }
      }
      for (size_t c = 0; c < full.size(); ++c) {
        const int64_t area =
            (r1 - r0) * (std::min<int64_t>(cols, (c + 1) * col_step) - static_cast<int64_t>(c) * col_step);
        const char* cell = full[c] == area ? "\u2588\u2588" : seen[c] ? "\u2591\u2591" : "  ";
        s += cell;
      }
      s += "\n";
    }
  }
  return s;
}

std::ostream& operator<<(std::ostream& out, const BlockMask& m) {
  if (!m.defined()) return out << "BlockMask()";
  char percent[32];
  std::snprintf(percent, sizeof percent, "%.2f", m.sparsity());
  return out << "BlockMask(shape=" << m.shape().to_string() << ", sparsity=" << percent << "%,\n"
             << m.to_string() << ")";
}

}  // namespace weft
