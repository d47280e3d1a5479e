#include "ops/attention/mods/relocate.h"

#include <algorithm>
#include <array>

#include "framework/dispatch/capture.h"
#include "framework/dispatch/dispatch.h"
#include "framework/dispatch/interpreter.h"
#include "ops/core/core.h"

namespace weft {
namespace {

using internal::AttentionOperands;
using internal::LocalAttention;

constexpr const char* kOp = "attention_on_shard";
constexpr const char* kDims[] = {"batch", "heads", "queries", "keys"};

/// Rewrites one node; maps and lengths are indexed by dim: b, h, q, kv.
class Relocation {
 public:
  Relocation(const Attrs& attrs, std::span<const Tensor> local, const ShardMaps& maps)
      : at_(attrs), in_(local), attrs_(attrs), maps_{&maps.b, &maps.h, &maps.q, &maps.kv} {
    WEFT_CHECK(static_cast<int>(local.size()) == at_.count, kOp, ": ", local.size(), " operands; need ", at_.count);
    const Tensor &q = local[0], &k = local[1];
    lengths_ = {q.size(0), q.size(1), q.size(2), k.size(2)};
    if (at_.pages >= 0) lengths_[3] *= operand(at_.pages).size(1);
    for (size_t d = 0; d < 4; ++d) check(d);
    WEFT_CHECK(at_.pages < 0 || maps_[3]->identity(), kOp, ": paged keys cannot be split; need all of them");
    WEFT_CHECK(k.size(1) > 0 && q.size(1) % k.size(1) == 0, kOp, ": ", q.size(1), " query heads and ", k.size(1),
               " key heads of a shard; need a multiple, the key heads that these query heads read");
  }

  LocalAttention run() {
    LocalAttention r{attrs_, {in_.begin(), in_.begin() + 3}};
    mod("score", 5, at_.score_first, at_.score_tables, &r);
    mod("mask", 4, at_.mask_first, at_.mask_tables, &r);
    blocks(&r);
    if (at_.dropout >= 0) {
      for (int i = at_.dropout; i < at_.dropout + 2; ++i) r.operands.push_back(operand(i));
      if (at_.places >= 0 || !all_identity()) dropout_places(&r);
    }
    if (at_.pages >= 0) r.operands.push_back(operand(at_.pages));
    return r;
  }

 private:
  const Tensor& operand(int i) const { return in_[static_cast<size_t>(i)]; }
  int64_t extent(size_t d) const { return maps_[d]->extent ? maps_[d]->extent : lengths_[d]; }
  bool all_identity() const {
    for (size_t d = 0; d < 4; ++d)
      if (!maps_[d]->identity() || extent(d) != lengths_[d]) return false;
    return true;
  }

  void check(size_t d) const {
    const IndexMap& m = *maps_[d];
    if (m.offset.defined())
      WEFT_CHECK(m.offset.dtype() == kInt64 && m.offset.dim() == 0, kOp, ": offset of ", kDims[d], " is ",
                 m.offset.type(), "; need a 0-d i64");
    if (m.table.defined())
      WEFT_CHECK(m.table.dtype() == kInt64 && m.table.dim() == 1 && m.table.size(0) >= lengths_[d], kOp,
                 ": positions of ", kDims[d], " are ", m.table.type(), " for ", lengths_[d],
                 " of them; need i64 [n], one for each");
    WEFT_CHECK(m.extent == 0 || m.extent >= lengths_[d], kOp, ": ", lengths_[d], " ", kDims[d], " of ", m.extent,
               "; need a part that is no larger than the whole");
    WEFT_CHECK(m.multiple >= 1, kOp, ": the offset of ", kDims[d], " is declared to be a multiple of ", m.multiple,
               "; need 1 or more");
  }

  /// Where the dropout of the shard is in the whole. A node that is itself a part has the whole's positions.
  void dropout_places(LocalAttention* r) const {
    Shape whole;
    for (size_t d = 0; d < 4; ++d) {
      Tensor places = positions_of(*maps_[d], lengths_[d], in_[0].device());
      if (at_.places >= 0) {
        const Tensor& given = operand(at_.places + static_cast<int>(d));
        places = maps_[d]->identity() && extent(d) == lengths_[d] ? given : index_select(given, 0, places);
      }
      whole.push_back(extent(d));
      r->operands.push_back(places);
    }
    if (at_.places < 0) r->attrs = r->attrs.with("dropout_extents", whole);
  }

  /// Rewrites the mod over positions of the whole as a mod over local positions. The operands that it needs for that
  /// come after its tables, so that tables keep their positions and their gradients' order.
  void mod(const char* key, size_t own, int first, int tables, LocalAttention* r) {
    if (!attrs_.has(key)) return;
    const Ref<Graph> from = attrs_.get<Ref<Graph>>(key);
    std::vector<bool> used(own, false);
    auto use = [&](Value v) {
      for (size_t i = 0; i < own; ++i) used[i] = used[i] || from->inputs[i] == v;
    };
    for (int32_t id = 0; id < from->size(); ++id)
      for (Value v : from->node(id).inputs) use(v);
    for (Value v : from->outputs) use(v);
    std::vector<TensorType> types;
    for (Value v : from->inputs) types.push_back(from->type(v));
    for (int i = first; i < first + tables; ++i) r->operands.push_back(operand(i));

    struct MovedInput {
      size_t input;
      const IndexMap* map;
      int64_t extent;
    };
    std::vector<MovedInput> moved;
    for (size_t d = 0; d < 4; ++d) {
      const size_t input = own - 4 + d;
      if (maps_[d]->identity() || !used[input]) continue;
      moved.push_back({input, maps_[d], extent(d)});
      for (const Tensor* t : {&maps_[d]->offset, &maps_[d]->table}) {
        if (!t->defined()) continue;
        r->operands.push_back(*t);
        types.push_back({kInt64, Device::cpu(), t->shape()});
        ++tables;
      }
    }
    if (moved.empty()) return;
    const Body body = capture_body(
        [&](std::span<const Tensor> in) {
          std::vector<Tensor> args(in.begin(), in.begin() + static_cast<int64_t>(from->inputs.size()));
          size_t next = args.size();
          for (const MovedInput& m : moved) {
            Tensor& i = args[m.input];
            // Redundant bounds, for narrowing, which needs known bounds.
            auto bounded = [&](const Tensor& x) {
              return m.map->extent ? minimum(maximum(x, 0), std::max<int64_t>(m.extent, 1) - 1) : x;
            };
            if (m.map->offset.defined()) i = i + bounded(in[next++]);
            if (m.map->table.defined()) i = bounded(in[next++][i]);
          }
          return interpret(*from, args);
        },
        types);
    WEFT_CHECK(body.lifted.empty(), kOp, ": a mod closes over ", body.lifted.size(),
               " tensors that are not operands; need all of them as tables");
    r->attrs = r->attrs.with(key, body.graph).with(std::string(key) + "_tables", static_cast<int64_t>(tables));
  }

  /// The part's rows of the lists of blocks if they are contiguous; otherwise none, and the kernels make the lists from
  /// the mask.
  void blocks(LocalAttention* r) const {
    if (at_.blocks < 0) return;
    const int64_t batch = attrs_.i("block_batch"), heads = attrs_.i("block_heads"), unit = attrs_.i("block_q");
    auto moves = [&](size_t d) { return !maps_[d]->identity() || extent(d) != lengths_[d]; };
    const bool b = moves(0) && batch > 1, h = moves(1) && heads > 1, q = moves(2);
    const size_t part = b ? 0 : h ? 1 : 2;
    const IndexMap& m = *maps_[part];
    const int64_t q_blocks = (extent(2) + unit - 1) / unit, own = (lengths_[2] + unit - 1) / unit;
    const bool aligned = part < 2 || !m.offset.defined() || m.multiple % unit == 0;
    // Rows are (batch, heads, blocks of queries).
    const bool together = int{b} + int{h} + int{q} <= 1 && !m.table.defined() && aligned && (part == 0 || batch == 1) &&
                          (part < 2 || heads == 1);
    if (moves(3) || (!together && (b || h || q))) {
      r->attrs = r->attrs.with("block_q", int64_t{0}).without("block_kv").without("block_batch").without("block_heads");
      return;
    }
    Tensor offsets = operand(at_.blocks);
    if (b || h || q) {
      const int64_t rows = part == 0 ? lengths_[0] * heads * q_blocks : part == 1 ? lengths_[1] * q_blocks : own;
      const int64_t step = part == 0 ? heads * q_blocks : q_blocks;
      Tensor first = constant(int64_t{0}, kInt64, offsets.device());
      if (m.offset.defined()) first = part == 2 ? floor_divide(m.offset, unit) : m.offset * step;
      // The entries stay in place: each row has the offsets of its own entries.
      offsets = index_select(offsets, 0, arange(rows + 1, {.dtype = kInt64, .device = offsets.device()}) + first);
      if (part == 0) r->attrs = r->attrs.with("block_batch", lengths_[0]);
      if (part == 1) r->attrs = r->attrs.with("block_heads", lengths_[1]);
    }
    r->operands.push_back(offsets);
    r->operands.push_back(operand(at_.blocks + 1));
    r->operands.push_back(operand(at_.blocks + 2));
  }

  const AttentionOperands at_;
  std::span<const Tensor> in_;
  const Attrs& attrs_;
  std::array<const IndexMap*, 4> maps_;
  std::array<int64_t, 4> lengths_;
};

std::vector<Tensor> call(const OpDef& op, LocalAttention node, const ShardOptions& options) {
  if (options.wide) node.attrs = node.attrs.with("wide", true);
  if (node.operands[0].dtype() == kFloat64) return op.decompose(node.attrs, node.operands);
  return dispatch_multi(op, internal::pointers(node.operands), node.attrs);
}

}  // namespace

LocalAttention internal::relocated(const Attrs& attrs, std::span<const Tensor> local, const ShardMaps& maps) {
  return Relocation(attrs, local, maps).run();
}

Tensor positions_of(const IndexMap& map, int64_t n, Device device) {
  Tensor at = arange(n, {.dtype = kInt64, .device = device});
  if (map.offset.defined()) at = at + map.offset;
  return map.table.defined() ? index_select(map.table, 0, at) : at;
}

std::vector<Tensor> attention_on_shard(const Attrs& attrs, std::span<const Tensor> local, const ShardMaps& maps,
                                       const ShardOptions& options) {
  return call(attention_op, internal::relocated(attrs, local, maps), options);
}

std::vector<Tensor> attention_backward_on_shard(const Attrs& attrs, std::span<const Tensor> local,
                                                const ShardMaps& maps, const ShardOptions& options) {
  WEFT_CHECK(local.size() > 5, "attention_backward_on_shard: ", local.size(),
             " operands; need attention's, out, log_sum, max and their gradients");
  LocalAttention node = internal::relocated(attrs, local.first(local.size() - 5), maps);
  for (const Tensor& t : local.last(5)) node.operands.push_back(t);
  return call(attention_backward_op, std::move(node), options);
}

}  // namespace weft
