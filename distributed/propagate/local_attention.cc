// Attention on a rank: mods and dropout see positions of the whole; keys whole, or passed around a ring.
#include "distributed/propagate/local_op.h"
#include "framework/dispatch/dispatch.h"
#include "ops/attention/context_parallel.h"
#include "ops/core/collective.h"
#include "ops/core/core.h"

namespace weft::dist {
namespace {

IndexMap map_of(Locals& locals, const DimSpec& dim) {
  IndexMap m;
  for (const Seg& s : dim) m.extent = m.extent ? m.extent * s.extent : s.extent;
  if (whole(dim)) return m;
  const bool block = dim[0].layout == Layout::kBlock && (dim.size() == 1 || (dim.size() == 2 && dim[1].axes.empty()));
  if (!block) {
    m.table = global_index(locals, dim);
    return m;
  }
  const int64_t inner = dim.size() == 2 ? dim[1].extent : 1, parts = locals.mesh().parts(dim[0].axes);
  m.offset = block_begin(locals, dim[0]) * inner;
  m.multiple = dim[0].extent % parts == 0 ? dim[0].extent / parts * inner : inner;
  return m;
}

// Positions of all ranks' parts, one after another; undefined where they are in order anyway.
Tensor positions(Locals& locals, const DimSpec& dim) {
  if (dim[0].layout == Layout::kBlock) return {};
  if (dim[0].layout == Layout::kDocuments) return locals.documents().positions;
  std::vector<int64_t> all;
  for (int peer : locals.mesh().group(locals.rank(), dim[0].axes))
    for (int64_t i : global_indices(locals.mesh(), dim, peer)) all.push_back(i);
  const auto n = static_cast<int64_t>(all.size());
  return Tensor::from_vector(all, {n});
}

RankGroup group_of(const LocalCall& c, const Axes& axes) {
  Locals& locals = c.locals;
  const std::string name = locals.mesh().name(axes);
  const int64_t n = locals.mesh().parts(axes);
  const Node& node = c.node;
  auto tell = [&locals, &node, axes](Move move, const Tensor& x, const Tensor& y) {
    locals.uses(node, move, axes, x, y);
    return y;
  };
  RankGroup g;
  g.size = n;
  g.rank = locals.coordinate(axes);
  g.all_gather = [=](const Tensor& x, int64_t dim) {
    return tell(Move::kAllGather, x, dispatch(all_gather_op, {&x}, {{"axes", name}, {"dim", dim}, {"parts", n}}));
  };
  g.reduce_scatter = [=](const Tensor& x, int64_t dim) {
    return tell(
        Move::kReduceScatter, x,
        dispatch(reduce_scatter_op, {&x}, {{"axes", name}, {"op", std::string("sum")}, {"dim", dim}, {"parts", n}}));
  };
  g.all_to_all = [=](const Tensor& x, int64_t split, int64_t concat) {
    return tell(
        Move::kAllToAll, x,
        dispatch(all_to_all_op, {&x}, {{"axes", name}, {"split_dim", split}, {"concat_dim", concat}, {"parts", n}}));
  };
  g.permute = [=](const Tensor& x, int64_t shift) {
    return tell(Move::kPermute, x, dispatch(permute_ranks_op, {&x}, {{"axes", name}, {"shift", shift}}));
  };
  return g;
}

}  // namespace

std::vector<Tensor> local_attention(const LocalCall& c) {
  const bool backward = c.node.op == &attention_backward_op;
  const DimSpec &s = c.split[factor(c.rule, "s")], &b = c.split[factor(c.rule, "b")];
  const DimSpec heads = join(c.locals.mesh(), {c.split[factor(c.rule, "h")], c.split[factor(c.rule, "g")]});
  const ShardMaps maps{map_of(c.locals, b), map_of(c.locals, heads), map_of(c.locals, s), {}};
  if (!c.ring) {
    if (maps.b.identity() && maps.h.identity() && maps.q.identity()) {
      SmallVec<const Tensor*, 8> in;
      for (const Tensor& t : c.in) in.push_back(&t);
      return dispatch_multi(*c.node.op, TensorPtrs(in), c.node.attrs, c.node.line);
    }
    return backward ? attention_backward_on_shard(c.node.attrs, c.in, maps)
                    : attention_on_shard(c.node.attrs, c.in, maps);
  }
  const internal::AttentionOperands at(c.node.attrs);
  ContextCall call{
      .attrs = c.node.attrs, .operands = {c.in.begin(), c.in.begin() + at.count}, .b = maps.b, .h = maps.h};
  call.q_positions = call.kv_positions = positions(c.locals, s);
  call.group = group_of(c, s[0].axes);
  if (!backward) {
    const ContextResult r = cp_ring(call);
    return {r.out, r.lse, r.max};
  }
  const auto n = static_cast<size_t>(at.count);
  const ContextResult forward{.out = c.in[n], .lse = c.in[n + 1], .max = {}, .saved = {}};
  return cp_ring_backward(call, forward, c.in[n + 2], c.in[n + 3]);
}

}  // namespace weft::dist
