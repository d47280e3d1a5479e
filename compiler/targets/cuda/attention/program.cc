#include "compiler/targets/cuda/attention/program.h"

#include <algorithm>
#include <cmath>

#include "compiler/targets/cuda/attention/tiles.h"
#include "framework/base/error.h"
#include "ops/attention/record.h"

namespace weft::cuda {
namespace {

using weft::internal::AttentionOperands;

// Thread blocks that keep a device busy, and keys that make a piece worth a block. They are constants, so that the
// order of sums depends only on the shapes.
constexpr int64_t kWantedBlocks = 528, kLeastPiece = 256;
constexpr int64_t kClassPoints = 128;   // block of a mask without lists
constexpr int64_t kPackedQueries = 64;  // at most this many queries share a tile with other heads

int64_t up_to_256(int64_t n) { return (n + 255) / 256 * 256; }
int64_t ceil_div(int64_t n, int64_t unit) { return (n + unit - 1) / unit; }

AttentionRows rows_of(const StridedView& v) {
  return {v.data, v.shape[0] == 1 ? 0 : v.strides[0], v.strides[1], v.strides[2]};
}
/// Whether rows can be read 16 bytes at a time.
bool aligned(const StridedView& v) {
  const int64_t unit = 16 / itemsize(v.dtype);
  bool whole = v.shape[3] % unit == 0 && reinterpret_cast<uintptr_t>(v.data) % 16 == 0;
  for (int d = 0; d < 3; ++d) whole &= v.shape[d] == 1 || v.strides[d] % unit == 0;
  return whole;
}
/// Whether a tensor map can describe the rows.
bool in_boxes(const StridedView& v) {
  bool forward = true;
  for (int d = 0; d < 3; ++d) forward &= v.shape[d] == 1 || (v.strides[d] > 0 && v.strides[d] < int64_t{1} << 39);
  return forward && v.numel() > 0;
}
Ref<Graph> graph_of(const Attrs& attrs, const char* key) {
  return attrs.has(key) ? attrs.get<Ref<Graph>>(key) : nullptr;
}

}  // namespace

struct AttentionProgram::AttentionExtents {
  AttentionOperands at;
  int64_t batch, heads, kv_heads, group, q_len, kv_len, entries, dim, value_dim, block_q, block_kv;
  bool pack;                                                  // heads that share keys fill a tile together
  int64_t class_batches, class_heads, q_classes, kv_classes;  // for a mask without lists
  int64_t rows;                                               // along a tile's rows
  AttentionExtents(const Attrs& attrs, std::span<const StridedView> in, const MaskDeps& mask) : at(attrs) {
    const Shape &q = in[0].shape, &k = in[1].shape;
    batch = q[0], heads = q[1], q_len = q[2], dim = q[3], value_dim = in[2].shape[3];
    entries = k[0], kv_heads = k[1], group = heads / kv_heads;
    kv_len = k[2] * (at.pages >= 0 ? in[static_cast<size_t>(at.pages)].shape[1] : 1);
    block_q = attrs.i("block_q"), block_kv = attrs.i("block_kv", 0);
    pack = group > 1 && q_len < kPackedQueries && (block_q == 0 ? !mask.head : attrs.i("block_heads") == 1);
    class_batches = mask.batch ? batch : 1, class_heads = mask.head ? heads : 1;
    q_classes = ceil_div(q_len, kClassPoints), kv_classes = ceil_div(kv_len, kClassPoints);
    rows = pack ? group * q_len : q_len;
  }
  /// The number of pieces of the keys.
  int64_t splits(int64_t block_m) const {
    const int64_t blocks = ceil_div(rows, block_m) * (pack ? kv_heads : heads) * batch;
    if (blocks == 0 || blocks * 4 >= kWantedBlocks || (block_m > 32 && blocks * 8 >= kWantedBlocks / 2)) return 1;
    return std::clamp<int64_t>(kv_len / kLeastPiece, 1, std::min<int64_t>(kWantedBlocks / blocks, 64));
  }
};

AttentionProgram::AttentionProgram(const Attrs& attrs, std::span<const StridedView> in,
                                   std::span<const StridedView> out, bool backward,
                                   const AttentionKernelOptions& options)
    : attrs_(attrs), options_(options), backward_(backward) {
  for (size_t i = 0; i < 3; ++i)
    WEFT_CHECK(in[i].shape[3] <= 1 || in[i].strides[3] == 1, "attention on CUDA: operand ", i, " has stride ",
               in[i].strides[3], " along its last dim; need 1");
  const AttentionSpec base = base_spec(in, out);
  if (base.classes) mask_mod_text(*base.mask, base.mask_tables, &mask_deps_);
  const AttentionExtents z(attrs_, in, mask_deps_);
  if (!backward) {
    const AttentionSpec s = forward_spec(base, z);
    add(s, hopper(s, z) ? AttentionPart::kForwardHopper : AttentionPart::kForward);
    if (s.split) add(s, AttentionPart::kMerge);
  } else {
    add_backward(base, z);
  }
  if (base.classes) {
    AttentionSpec c = base;
    c.row_tiles = 1, c.warps = 8;
    add(c, AttentionPart::kClassify);
  }
}

void AttentionProgram::add_backward(const AttentionSpec& base, const AttentionExtents& z) {
  std::vector<DType> learned;
  for (int i = 0; i < z.at.score_tables; ++i) {
    const TensorType& t = base.score_tables[static_cast<size_t>(i)];
    if (!z.at.learned(i, t.dtype)) continue;
    WEFT_CHECK(t.dtype != kFloat64, "attention on CUDA: score_mod captures ", t,
               "; need f32, bf16 or f16 for its gradient");
    learned.push_back(t.dtype);
  }
  add(delta_spec(base), AttentionPart::kDelta);
  add(key_grad_spec(base, z), key_grad_part(base, z));
  const AttentionSpec q = query_grad_spec(base, z);
  add(q, query_grad_part(base, z));
  if (!learned.empty()) add(table_grad_spec(base, z), AttentionPart::kTableGrad);
  for (DType t : learned) {
    AttentionSpec f = delta_spec(base);
    f.type = base.wide ? kFloat32 : t;
    size_t k = 4;  // one kernel per element type
    while (k < specs_.size() && specs_[k].type != f.type) ++k;
    if (k == specs_.size()) add(f, AttentionPart::kFinishTables);
    finish_.push_back(static_cast<int>(k));
  }
}

void AttentionProgram::add(const AttentionSpec& spec, AttentionPart part) {
  specs_.push_back(spec);
  parts_.push_back(part);
  kernels_.push_back(attention_kernel(spec, part));
}

AttentionSpec AttentionProgram::base_spec(std::span<const StridedView> in, std::span<const StridedView> out) const {
  const AttentionOperands at(attrs_);
  AttentionSpec s;
  s.type = in[0].dtype;
  s.dim = static_cast<int>(in[0].shape[3]), s.value_dim = static_cast<int>(in[2].shape[3]);
  s.tf32 = options_.tf32 && s.type == kFloat32;
  s.aligned = options_.alignment >= 16 && aligned(in[0]) && aligned(in[1]) && aligned(in[2]);
  s.boxes = in_boxes(in[0]) && in_boxes(in[1]) && in_boxes(in[2]);
  if (backward_) {
    const StridedView& dout = in[static_cast<size_t>(at.count + 3)];
    s.aligned = s.aligned && aligned(dout), s.boxes = s.boxes && in_boxes(dout);
  }
  for (size_t i = 0; backward_ && i < 3 && out.size() >= 3; ++i) s.aligned = s.aligned && aligned(out[i]);
  s.blocks = at.blocks >= 0;
  s.score = graph_of(attrs_, "score"), s.mask = graph_of(attrs_, "mask");
  s.classes = s.mask && !s.blocks;
  s.scale_first = s.score || !(attrs_.f("scale") > 0);
  s.dropout = at.dropout >= 0, s.places = at.places >= 0, s.paged = at.pages >= 0;
  s.wide = out[0].dtype == kFloat32;
  s.fixed_tables = at.fixed_tables;
  for (int i = 0; i < at.score_tables; ++i) {
    const StridedView& t = in[static_cast<size_t>(at.score_first + i)];
    s.score_tables.push_back({t.dtype, Device::cpu(), t.shape});
  }
  for (int i = 0; i < at.mask_tables; ++i) {
    const StridedView& t = in[static_cast<size_t>(at.mask_first + i)];
    s.mask_tables.push_back({t.dtype, Device::cpu(), t.shape});
  }
  WEFT_CHECK(s.score_tables.size() <= 8 && s.mask_tables.size() <= 8, "attention on CUDA: ", s.score_tables.size(),
             " tensors captured by score_mod and ", s.mask_tables.size(), " by mask_mod; need at most 8 each");
  return s;
}

AttentionSpec AttentionProgram::forward_spec(const AttentionSpec& base, const AttentionExtents& z) const {
  AttentionSpec s = forward_tiles(base, z.rows, z.block_q);
  s.pack_heads = z.pack;
  s.split = z.splits(s.block_m()) > 1;
  return hopper(s, z) ? hopper_tiles(s, z.block_kv) : s;
}
bool AttentionProgram::hopper(const AttentionSpec& forward, const AttentionExtents& z) const {
  return options_.sm90a && options_.maps && hopper_takes(forward, z.rows, z.block_q);
}
AttentionPart AttentionProgram::key_grad_part(const AttentionSpec& base, const AttentionExtents& z) const {
  return options_.sm90a && options_.maps && hopper_takes_key_grad(base, z.q_len, z.kv_len, z.block_q, z.block_kv)
             ? AttentionPart::kKeyGradHopper
             : AttentionPart::kKeyGrad;
}
AttentionPart AttentionProgram::query_grad_part(const AttentionSpec& base, const AttentionExtents& z) const {
  return options_.sm90a && options_.maps && hopper_takes_query_grad(base, z.q_len, z.kv_len, z.block_q, z.block_kv)
             ? AttentionPart::kQueryGradHopper
             : AttentionPart::kQueryGrad;
}
AttentionSpec AttentionProgram::key_grad_spec(const AttentionSpec& base, const AttentionExtents& z) const {
  const AttentionPart part = key_grad_part(base, z);
  return part == AttentionPart::kKeyGrad ? key_grad_tiles(base, z.kv_len, z.block_kv) : hopper_grad_tiles(base, part);
}
AttentionSpec AttentionProgram::query_grad_spec(const AttentionSpec& base, const AttentionExtents& z) const {
  const AttentionPart part = query_grad_part(base, z);
  return part == AttentionPart::kQueryGrad ? query_grad_tiles(base, z.q_len, z.block_q) : hopper_grad_tiles(base, part);
}
AttentionSpec AttentionProgram::table_grad_spec(const AttentionSpec& base, const AttentionExtents& z) const {
  return table_grad_tiles(base, z.q_len, z.block_q);
}
AttentionSpec AttentionProgram::delta_spec(const AttentionSpec& base) const {
  AttentionSpec s = base;
  s.row_tiles = 1, s.warps = 8;
  s.score = s.mask = nullptr, s.score_tables.clear(), s.mask_tables.clear();
  s.value_cols = s.value_dim;
  return s;
}

AttentionParams AttentionProgram::params(std::span<const StridedView> in) const {
  const AttentionExtents z(attrs_, in, mask_deps_);
  AttentionParams p{};
  p.q = rows_of(in[0]), p.k = rows_of(in[1]), p.v = rows_of(in[2]);
  p.batch = static_cast<int32_t>(z.batch), p.heads = static_cast<int32_t>(z.heads);
  p.group = static_cast<int32_t>(z.group), p.entries = static_cast<int32_t>(z.entries);
  p.q_len = static_cast<int32_t>(z.q_len), p.kv_len = static_cast<int32_t>(z.kv_len);
  p.scale = static_cast<float>(attrs_.f("scale"));
  p.splits = 1;
  auto view = [&](int i) -> const StridedView& { return in[static_cast<size_t>(i)]; };
  if (z.at.blocks >= 0) {
    p.offsets = view(z.at.blocks).as<int64_t>();
    p.ranges = view(z.at.blocks + 1).as<int32_t>();
    p.tiles = view(z.at.blocks + 2).as<uint8_t>();
    p.block_q = static_cast<int32_t>(z.block_q), p.block_kv = static_cast<int32_t>(z.block_kv);
    const int64_t q_blocks = ceil_div(z.q_len, z.block_q), heads = attrs_.i("block_heads");
    p.mask_head = heads == 1 ? 0 : static_cast<int32_t>(q_blocks);
    p.mask_batch = attrs_.i("block_batch") == 1 ? 0 : static_cast<int32_t>(q_blocks * heads);
  }
  if (z.at.blocks < 0 && attrs_.has("mask")) {
    p.block_q = p.block_kv = static_cast<int32_t>(kClassPoints);
    p.class_batches = static_cast<int32_t>(z.class_batches), p.class_heads = static_cast<int32_t>(z.class_heads);
    p.mask_head = z.class_heads == 1 ? 0 : static_cast<int32_t>(z.q_classes);
    p.mask_batch = z.class_batches == 1 ? 0 : static_cast<int32_t>(z.q_classes * z.class_heads);
  }
  if (z.at.dropout >= 0) {
    const double rate = attrs_.f("dropout");
    p.seed = view(z.at.dropout).as<int64_t>(), p.step = view(z.at.dropout + 1).as<int64_t>();
    p.op_id = static_cast<uint32_t>(attrs_.i("op_id"));
    p.threshold = static_cast<uint32_t>(std::ceil(static_cast<double>(static_cast<float>(rate)) * 0x1p24));
    p.keep_scale = static_cast<float>(1 / (1 - rate));
    if (z.at.places >= 0) {
      const Shape& whole = attrs_.ints("dropout_extents");
      for (int i = 0; i < 4; ++i) p.places[i] = view(z.at.places + i).as<int64_t>();
      for (int i = 0; i < 3; ++i) p.whole[i] = whole[i + 1];
    }
  }
  if (z.at.pages >= 0) {
    p.pages = view(z.at.pages).as<int64_t>();
    p.page_count = static_cast<int32_t>(view(z.at.pages).shape[1]);
    p.page_size = static_cast<int32_t>(in[1].shape[2]), p.page_limit = static_cast<int32_t>(in[1].shape[0]);
    p.k.batch = in[1].strides[0], p.v.batch = in[2].strides[0];
  }
  auto captured = [&](int i, const void** data, int32_t(&extents)[4]) {
    const StridedView& t = view(i);
    *data = t.data;
    for (size_t d = 0; d < std::min<size_t>(4, t.shape.size()); ++d) extents[d] = static_cast<int32_t>(t.shape[d]);
  };
  int64_t first = 0;
  for (int i = 0; i < z.at.score_tables; ++i) {
    const StridedView& t = view(z.at.score_first + i);
    captured(z.at.score_first + i, &p.score_table[i], p.score_extent[i]);
    p.score_first[i] = first;
    if (z.at.learned(i, t.dtype)) first += t.numel();
  }
  for (int i = 0; i < z.at.mask_tables; ++i) captured(z.at.mask_first + i, &p.mask_table[i], p.mask_extent[i]);
  return p;
}

// ---- launches ----

namespace {

AttentionMap map_of(const StridedView& v, int rows) {
  AttentionMap m;
  m.base = v.data;
  m.box[0] = 64, m.box[1] = static_cast<uint32_t>(rows), m.box[2] = m.box[3] = 1;
  const int dim[] = {3, 2, 1, 0};  // dims of the view
  for (int i = 0; i < 4; ++i) m.extents[i] = static_cast<uint64_t>(v.shape[dim[i]]);
  for (int i = 0; i < 3; ++i) {  // a dim of one element may have any stride
    const uint64_t within = i == 0 ? m.extents[0] * 2 : m.strides[i - 1] * m.extents[i];
    m.strides[i] =
        v.shape[dim[i + 1]] == 1 ? (within + 15) / 16 * 16 : static_cast<uint64_t>(v.strides[dim[i + 1]]) * 2;
  }
  return m;
}

/// Consecutive pieces of memory.
struct WorkspaceRegions {
  char* base;
  int64_t bytes = 0;
  template <class T>
  T* take(int64_t n) {
    T* here = reinterpret_cast<T*>(base + bytes);
    bytes += up_to_256(n * static_cast<int64_t>(sizeof(T)));
    return here;
  }
};

}  // namespace

int64_t AttentionProgram::workspace(std::span<const StridedView> in) const {
  WorkspaceRegions l{nullptr};
  AttentionParams p = params(in);
  lay_out(in, &p, &l.bytes, nullptr);
  return l.bytes;
}

void AttentionProgram::lay_out(std::span<const StridedView> in, AttentionParams* p, int64_t* bytes,
                               void* workspace) const {
  const AttentionExtents z(attrs_, in, mask_deps_);
  WorkspaceRegions l{static_cast<char*>(workspace)};
  const int64_t lines = z.batch * z.heads * z.q_len;
  if (parts_.back() == AttentionPart::kClassify)
    p->classes = l.take<uint8_t>(z.class_batches * z.class_heads * z.q_classes * z.kv_classes);
  if (!backward_) {
    p->splits = static_cast<int32_t>(z.splits(specs_[0].block_m()));
    if (p->splits > 1) {
      p->part_out = l.take<float>(p->splits * lines * z.value_dim);
      p->part_max = l.take<float>(p->splits * lines);
      p->part_sum = l.take<float>(p->splits * lines);
    }
  } else {
    p->delta = l.take<float>(lines);
    if (const int64_t elements = table_elements(in)) {
      p->set_size = elements;
      p->sets = static_cast<int32_t>(table_sets(in));
      p->sums = l.take<float>(p->sets * elements);
    }
  }
  *bytes = l.bytes;
}

int64_t AttentionProgram::table_elements(std::span<const StridedView> in) const {
  const AttentionOperands at(attrs_);
  int64_t n = 0;
  for (int i = 0; i < at.score_tables; ++i)
    if (const StridedView& t = in[static_cast<size_t>(at.score_first + i)]; at.learned(i, t.dtype)) n += t.numel();
  return n;
}
/// Private sums of the gradients of tables: one set per task, up to a number of bytes.
int64_t AttentionProgram::table_sets(std::span<const StridedView> in) const {
  constexpr int64_t kMostBytes = int64_t{256} << 20, kMostSets = 264;
  const AttentionExtents z(attrs_, in, mask_deps_);
  const AttentionSpec s = table_grad_spec(base_spec(in, {in.data(), 1}), z);
  const int64_t tasks = ceil_div(z.q_len, s.block_m()) * z.heads * z.batch;
  return std::clamp<int64_t>(kMostBytes / (4 * std::max<int64_t>(1, table_elements(in))), 1,
                             std::max<int64_t>(1, std::min(tasks, kMostSets)));
}

std::vector<AttentionLaunch> AttentionProgram::launches(std::span<const StridedView> in,
                                                        std::span<const StridedView> out, void* workspace) const {
  const AttentionExtents z(attrs_, in, mask_deps_);
  AttentionParams p = params(in);
  int64_t bytes = 0;
  lay_out(in, &p, &bytes, workspace);
  std::vector<AttentionLaunch> all;
  auto launch = [&](int kernel, int64_t blocks) {
    WEFT_CHECK(blocks < (int64_t{1} << 31), "attention on CUDA: ", blocks, " blocks; need fewer than 2^31");
    if (blocks > 0) all.push_back({kernel, {.x = static_cast<uint32_t>(blocks)}, p});
  };
  const int64_t lines = z.batch * z.heads * z.q_len;
  if (parts_.back() == AttentionPart::kClassify && lines > 0)
    launch(static_cast<int>(parts_.size()) - 1, z.class_batches * z.class_heads * z.q_classes * z.kv_classes);
  if (!backward_) {
    const AttentionSpec& s = specs_[0];
    p.out = rows_of(out[0]);
    p.log_sum = out[1].as<float>(), p.max = out[2].as<float>();
    if (parts_[0] == AttentionPart::kForwardHopper) {
      launch(0, ceil_div(z.q_len, s.block_m()) * z.heads * z.batch);
      if (!all.empty() && all.back().kernel == 0)
        all.back().maps = {map_of(in[0], s.block_m()), map_of(in[1], s.block_n), map_of(in[2], s.block_n)};
      return all;
    }
    launch(0, ceil_div(z.rows, s.block_m()) * p.splits * column_chunks(s, AttentionPart::kForward) *
                  (s.pack_heads ? z.kv_heads : z.heads) * z.batch);
    if (s.split) launch(1, ceil_div(lines, s.warps));
    return all;
  }
  const StridedView* rest = &in[static_cast<size_t>(z.at.count)];
  p.out = rows_of(rest[0]);
  p.log_sum = rest[1].as<float>(), p.max = rest[2].as<float>();
  p.dout = rows_of(rest[3]);
  p.dlse = rest[4].as<float>();
  p.dq = rows_of(out[0]), p.dk = rows_of(out[1]), p.dv = rows_of(out[2]);
  launch(0, ceil_div(lines, specs_[0].warps));
  launch(1, ceil_div(z.kv_len, specs_[1].block_m()) * column_chunks(specs_[1], AttentionPart::kKeyGrad) * z.kv_heads *
                z.entries);
  if (parts_[1] == AttentionPart::kKeyGradHopper) {
    const int rows = specs_[1].block_m(), tile = specs_[1].block_n;
    all.back().maps = {map_of(in[0], tile), map_of(in[1], rows), map_of(in[2], rows), map_of(rest[3], tile)};
  }
  launch(2, ceil_div(z.q_len, specs_[2].block_m()) * column_chunks(specs_[2], AttentionPart::kQueryGrad) * z.heads *
                z.batch);
  if (parts_[2] == AttentionPart::kQueryGradHopper)
    all.back().maps = {map_of(in[1], specs_[2].block_n), map_of(in[2], specs_[2].block_n)};
  if (p.sets > 0) {
    launch(3, p.sets);
    size_t next = 3;
    int64_t first = 0;
    size_t table = 0;
    for (int i = 0; i < z.at.score_tables; ++i) {
      const StridedView& t = in[static_cast<size_t>(z.at.score_first + i)];
      if (!z.at.learned(i, t.dtype)) continue;
      p.table_grad = out[next++].data;
      p.table_first = first, p.table_size = t.numel();
      const int kernel = finish_[table++];
      launch(kernel, ceil_div(t.numel(), specs_[static_cast<size_t>(kernel)].warps * 32));
      first += t.numel();
    }
  }
  return all;
}

}  // namespace weft::cuda
