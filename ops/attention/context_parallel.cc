#include "ops/attention/context_parallel.h"

#include <algorithm>

#include "framework/dispatch/dispatch.h"
#include "ops/attention/masks/mask_analysis.h"
#include "ops/attention/merge.h"
#include "ops/core/collectives/collective.h"
#include "ops/core/core.h"

namespace weft {
namespace {

using internal::AttentionOperands;

/// Shapes, and the mapping of a rank's part.
class Context {
 public:
  explicit Context(const ContextCall& call) : c(call), q(call.operands[0]), k(call.operands[1]), v(call.operands[2]) {
    WEFT_CHECK(AttentionOperands(c.attrs).pages < 0,
               "cp_ring: paged keys are not supported here; gather the pages first");
    WEFT_CHECK(c.group.size >= 1 && c.group.rank.defined(), "cp_ring: got no group of ranks");
    for (const auto& [t, n, name] :
         {std::tuple{&c.q_positions, q_length(), "queries"}, std::tuple{&c.kv_positions, kv_length(), "keys"}})
      WEFT_CHECK(!t->defined() || (t->dtype() == kInt64 && t->shape() == Shape{n}), "cp_ring: positions of ", name,
                 " are ", t->defined() ? t->type() : TensorType(), "; need i64 [", n, "], ", c.group.size,
                 " ranks with ", n / c.group.size, " each");
  }

  int64_t ranks() const { return c.group.size; }
  int64_t q_length() const { return q.size(2) * ranks(); }
  int64_t kv_length() const { return k.size(2) * ranks(); }

  /// The queries of the rank at this position.
  IndexMap queries_of(const Tensor& rank) const { return part(c.q_positions, rank, q.size(2)); }
  IndexMap keys_of(const Tensor& rank) const { return part(c.kv_positions, rank, k.size(2)); }

  /// Keys and values as one message, and the inverse.
  Tensor joined(const Tensor& keys, const Tensor& values) const { return weft::cat({keys, values}, -1); }
  Tensor keys(const Tensor& kv) const { return slice(kv, -1, 0, k.size(3)); }
  Tensor values(const Tensor& kv) const { return slice(kv, -1, k.size(3), k.size(3) + v.size(3)); }

  std::vector<Tensor> operands(const Tensor& queries, const Tensor& keys, const Tensor& values) const {
    std::vector<Tensor> in = c.operands;
    in[0] = queries, in[1] = keys, in[2] = values;
    return in;
  }
  std::vector<Tensor> forward(const std::vector<Tensor>& in, const ShardMaps& maps, bool wide) const {
    return attention_on_shard(c.attrs, in, maps, {.wide = wide});
  }
  /// f32 gradients.
  std::vector<Tensor> backward(std::vector<Tensor> in, const ShardMaps& maps, const ContextResult& f,
                               const Tensor& dout, const Tensor& dlse) const {
    const Tensor none = dlse.defined() ? dlse : zeros(f.max.shape(), {.dtype = f.max.dtype()});
    for (const Tensor& t : {f.out, f.log_sum, f.max, dout, none}) in.push_back(t);
    return attention_backward_on_shard(c.attrs, in, maps, {.wide = true});
  }
  /// Gradients in the dtypes of their operands.
  std::vector<Tensor> narrowed(std::vector<Tensor> g) const {
    const AttentionOperands at(c.attrs);
    for (size_t i = 0; i < 3; ++i) g[i] = cast(g[i], q.dtype());
    size_t next = 3;
    for (int i = 0; i < at.score_tables; ++i) {
      const DType t = c.operands[static_cast<size_t>(at.score_first + i)].dtype();
      if (at.learned(i, t)) g[next] = cast(g[next], t), ++next;
    }
    return g;
  }

  const ContextCall& c;
  const Tensor &q, &k, &v;

 private:
  IndexMap part(const Tensor& positions, const Tensor& rank, int64_t n) const {
    return {.offset = rank * n, .table = positions, .extent = n * ranks(), .multiple = std::max<int64_t>(n, 1)};
  }
};

/// Positions [begin, end), in order.
struct PositionRange {
  int64_t begin, end;
};

/// The positions of each rank as runs of consecutive positions; empty if they are not known now.
std::vector<std::vector<PositionRange>> intervals(const Tensor& positions, int64_t ranks, int64_t each) {
  std::vector<std::vector<PositionRange>> all(static_cast<size_t>(ranks));
  if (positions.defined() && positions.is_traced()) return {};
  std::vector<int64_t> at;
  if (positions.defined()) at = positions.contiguous().to_vector<int64_t>();
  for (int64_t r = 0; r < ranks; ++r) {
    std::vector<PositionRange>& own = all[static_cast<size_t>(r)];
    if (at.empty()) {
      if (each > 0) own.push_back({r * each, (r + 1) * each});
      continue;
    }
    std::vector<int64_t> sorted(at.begin() + r * each, at.begin() + (r + 1) * each);
    std::sort(sorted.begin(), sorted.end());
    for (int64_t x : sorted) {
      if (!own.empty() && own.back().end == x) {
        ++own.back().end;
      } else {
        own.push_back({x, x + 1});
      }
    }
  }
  return all;
}

}  // namespace

std::vector<bool> internal::ring_steps(const ContextCall& call) {
  const Context x(call);
  const int64_t c = x.ranks();
  std::vector<bool> needed(static_cast<size_t>(c), true);
  const AttentionOperands at(call.attrs);
  if (!call.attrs.has("mask")) return needed;
  std::vector<Tensor> tables(call.operands.begin() + at.mask_first,
                             call.operands.begin() + at.mask_first + at.mask_tables);
  for (const Tensor& t : tables)
    if (t.is_traced()) return needed;
  const auto queries = intervals(call.q_positions, c, x.q.size(2)), keys = intervals(call.kv_positions, c, x.k.size(2));
  if (queries.empty() || keys.empty()) return needed;
  const MaskProgram program(Body{call.attrs.get<Ref<Graph>>("mask"), tables});
  TableBounds bounds;
  auto extent = [](const IndexMap& m, int64_t n) { return std::max<int64_t>(1, m.extent ? m.extent : n); };
  MaskAnalysis analysis(program, bounds, MaskRange::between(0, extent(call.b, x.q.size(0)) - 1),
                        MaskRange::between(0, extent(call.h, x.q.size(1)) - 1));
  auto seen = [&](int64_t r, int64_t s) {
    for (const PositionRange& q : queries[static_cast<size_t>(r)])
      for (const PositionRange& k : keys[static_cast<size_t>(s)]) {
        const MaskRange& m = analysis.over(q.begin, q.end, k.begin, k.end);
        if (!m.constant() || m.lo) return true;
      }
    return false;
  };
  for (int64_t s = 0; s < c; ++s) {
    bool any = false;
    for (int64_t r = 0; r < c && !any; ++r) any = seen(r, (r - s + c) % c);
    needed[static_cast<size_t>(s)] = any;
  }
  needed[0] = true;
  return needed;
}

RankGroup rank_group(const std::string& axes, int64_t size) {
  const Attrs on{{"axes", axes}};
  RankGroup g;
  g.size = size;
  g.rank = dispatch(rank_coordinate_op, {}, on);
  g.permute = [=](const Tensor& x, int64_t shift) { return dispatch(permute_ranks_op, {&x}, on.with("shift", shift)); };
  return g;
}

ContextResult cp_ring(const ContextCall& c) {
  const Context x(c);
  const std::vector<bool> needed = internal::ring_steps(c);
  const int64_t last = std::find(needed.rbegin(), needed.rend(), true).base() - needed.begin() - 1;
  const IndexMap queries = x.queries_of(c.group.rank);
  PartialAttention all;
  Tensor kv = x.joined(x.k, x.v);
  for (int64_t s = 0; s <= last; ++s) {
    // The transfer is in progress while this step computes.
    const Tensor next = s < last ? c.group.permute(kv, 1) : Tensor();
    if (needed[static_cast<size_t>(s)]) {
      const IndexMap keys = x.keys_of(s ? remainder(c.group.rank + (x.ranks() - s), x.ranks()) : c.group.rank);
      const std::vector<Tensor> r =
          x.forward(x.operands(x.q, s ? x.keys(kv) : x.k, s ? x.values(kv) : x.v), {c.b, c.h, queries, keys}, last > 0);
      const PartialAttention part{r[0], r[1], r[2]};
      all = all.out.defined() ? merge_attention(all, part, internal::softmax_scale(c.attrs)) : part;
    }
    kv = next;
  }
  return {cast(all.out, x.q.dtype()), all.log_sum, all.max};
}

std::vector<Tensor> cp_ring_backward(const ContextCall& c, const ContextResult& forward, const Tensor& dout,
                                     const Tensor& dlse) {
  const Context x(c);
  const std::vector<bool> needed = internal::ring_steps(c);
  const int64_t last = std::find(needed.rbegin(), needed.rend(), true).base() - needed.begin() - 1;
  const IndexMap queries = x.queries_of(c.group.rank);
  std::vector<Tensor> sum;
  Tensor kv = x.joined(x.k, x.v), travelling;  // gradients of kv, which move along with it
  for (int64_t s = 0; s <= last; ++s) {
    const Tensor next = s < last ? c.group.permute(kv, 1) : Tensor();
    if (travelling.defined()) travelling = c.group.permute(travelling, 1);
    if (needed[static_cast<size_t>(s)]) {
      const IndexMap keys = x.keys_of(s ? remainder(c.group.rank + (x.ranks() - s), x.ranks()) : c.group.rank);
      std::vector<Tensor> g = x.backward(x.operands(x.q, s ? x.keys(kv) : x.k, s ? x.values(kv) : x.v),
                                         {c.b, c.h, queries, keys}, forward, dout, dlse);
      if (s == 0) {
        sum = std::move(g);
      } else {
        const Tensor own = x.joined(g[1], g[2]);
        travelling = travelling.defined() ? travelling + own : own;
        for (size_t i = 0; i < g.size(); ++i)
          if (i != 1 && i != 2) sum[i] = sum[i] + g[i];
      }
    }
    kv = next;
  }
  if (travelling.defined()) {
    const Tensor home = c.group.permute(travelling, x.ranks() - last);
    sum[1] = sum[1] + x.keys(home), sum[2] = sum[2] + x.values(home);
  }
  return x.narrowed(std::move(sum));
}

}  // namespace weft
