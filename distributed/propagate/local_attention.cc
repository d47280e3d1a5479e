// Attention on one rank with all of its keys. Mods and dropout see global positions.
#include "distributed/propagate/local_op.h"
#include "framework/dispatch/dispatch.h"
#include "ops/attention/record.h"
#include "ops/core/core.h"

namespace weft::dist {

IndexMap index_map(Locals& locals, const DimSpec& dim) {
  IndexMap m;
  for (const Seg& s : dim) m.extent = m.extent ? m.extent * s.extent : s.extent;
  if (whole(dim)) return m;
  const bool block =
      dim[0].layout == SegLayout::kBlock && (dim.size() == 1 || (dim.size() == 2 && dim[1].axes.empty()));
  if (!block) {
    m.table = global_index(locals, dim);
    return m;
  }
  const int64_t inner = dim.size() == 2 ? dim[1].extent : 1, parts = locals.mesh().parts(dim[0].axes);
  m.offset = block_begin(locals, dim[0]) * inner;
  m.multiple = dim[0].extent % parts == 0 ? dim[0].extent / parts * inner : inner;
  return m;
}

std::vector<Tensor> local_attention(const LocalCall& c) {
  const bool backward = c.node.op == &attention_backward_op;
  const DimSpec &s = c.split[factor(c.rule, "s")], &b = c.split[factor(c.rule, "b")];
  const DimSpec heads = join(c.locals.mesh(), {c.split[factor(c.rule, "h")], c.split[factor(c.rule, "g")]});
  const ShardMaps maps{index_map(c.locals, b), index_map(c.locals, heads), index_map(c.locals, s), {}};
  if (maps.b.identity() && maps.h.identity() && maps.q.identity()) {
    SmallVec<const Tensor*, 8> in;
    for (const Tensor& t : c.in) in.push_back(&t);
    return dispatch_multi(*c.node.op, TensorPtrs(in), c.node.attrs, c.node.line);
  }
  return backward ? attention_backward_on_shard(c.node.attrs, c.in, maps)
                  : attention_on_shard(c.node.attrs, c.in, maps);
}

}  // namespace weft::dist
