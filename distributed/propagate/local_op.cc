#include "distributed/propagate/local_op.h"

#include <functional>
#include <limits>

#include "framework/dispatch/dispatch.h"
#include "ops/attention/record.h"
#include "ops/core/collectives/collective.h"
#include "ops/core/core.h"
#include "ops/core/indexing/index.h"
#include "ops/core/products/exact.h"

namespace weft::dist {
namespace {

TensorPtrs pointers(std::span<const Tensor> in, SmallVec<const Tensor*, 4>& out) {
  for (const Tensor& t : in) out.push_back(&t);
  return out;
}

std::vector<Tensor> same_op(const LocalCall& c, const Attrs& attrs) {
  SmallVec<const Tensor*, 4> in;
  return dispatch_multi(*c.node.op, pointers(c.in, in), attrs, c.node.line);
}

Shape result_shape(const LocalCall& c, size_t i) {
  return local_shape(c.locals.mesh(), result_spec(c.locals.mesh(), c.rule, i, c.split), c.locals.rank());
}

// The segments of a dim that consists of these factors.
std::vector<Seg> segments(const LocalCall& c, const std::vector<int>& factors) {
  std::vector<Seg> out;
  for (int f : factors)
    for (const Seg& s : c.split[f]) out.push_back(s);
  return out;
}

Tensor scalar(int64_t v) { return constant(v, kInt64); }

Tensor iota(int64_t n) { return arange(n, TensorOptions{.dtype = kInt64}); }

const DimSpec& factor_split(const LocalCall& c, const DimFactors& tensor, int64_t dim) {
  return c.split[tensor[dim][0]];
}

// A node's indices into a table.
struct Indices {
  size_t operand = 1;
  int dim = -1;               // dim of operand 0, the table; -1: the node has no table that may be split
  int64_t limit = 0;          // entries of the whole table
  std::string before, after;  // texts of the node's own error
  int64_t ignore = 0;         // an index that the node does not use; 0: none
  std::string instead;        // the whole error, if not empty
};
std::optional<Indices> indices_of(const Graph& g, const Node& n) {
  const std::string what = n.attrs.has("what") ? n.attrs.get<std::string>("what") : "";
  Indices at{.before = str_cat(what, what.empty() ? "" : ": ", n.op->name, ": index "), .after = " is out of range"};
  if (internal::is_whole_error(what)) at.instead = what;
  if (n.op == &exact_index_add_op || n.op == &exact_scatter_add_op) {
    at.operand = 0;
    at.limit = n.attrs.i("rows");
  } else if (n.op->is(kLinearLoss)) {
    at.operand = 2;
    at.limit = g.type(n.inputs[1]).shape[0];
    at.before = "cross_entropy: a target is not a class: got ";
    at.after = "";
    at.ignore = n.attrs.i("ignore_index");
  } else {
    if (!n.op->is(kPicks) && !n.op->is(kAddsAtIndex) && n.op != &index_copy_op) return {};
    at.dim = static_cast<int>(indexed_dim(n));
    at.limit = g.type(n.inputs[0]).shape[at.dim];
  }
  return at;
}

// The indices of a node with a part of the table or of the indices, checked against the whole table, so the error
// equals one device's.
Tensor checked(const LocalCall& c, const Indices& at) {
  const Tensor& index = c.in[at.operand];
  const Shape& shape = c.graph.type(c.node.inputs[at.operand]).shape;
  std::vector<Tensor> in{index};
  Shape dims;
  for (int d = 0; d < shape.size(); ++d) {
    DimSpec dim;
    for (const Seg& s : segments(c, c.rule.map.in[at.operand][d])) dim.push_back(s);
    if (whole(dim) || is_rows(dim)) continue;
    const IndexMap map = index_map(c.locals, dim);
    in.push_back(map.table.defined() ? map.table : map.offset);
    dims.push_back(d);
  }
  if (dims.empty() && (at.dim < 0 || whole(factor_split(c, c.rule.map.in[0], at.dim)))) return index;
  Attrs attrs{{"before", at.before}, {"after", at.after}, {"limit", at.limit}, {"shape", shape}, {"dims", dims}};
  if (at.ignore != 0) attrs = attrs.with("ignore", at.ignore);
  if (!at.instead.empty()) attrs = attrs.with("instead", at.instead);
  SmallVec<const Tensor*, 4> ptrs;
  return dispatch(check_index_op, pointers(in, ptrs), attrs, c.node.line);
}

// Indices into a split dim, converted to local indices; and whether this rank owns each.
struct Owned {
  Tensor index, inside;
};
Owned owned(const LocalCall& c, const DimSpec& dim, const Tensor& index) {
  const Mesh& mesh = c.locals.mesh();
  Tensor rest = index.to(kInt64), at, inside;
  auto both = [](const Tensor& a, const Tensor& b) { return a.defined() ? logical_and(a, b) : b; };
  int64_t stride = 1;  // stride of a segment in local positions, from the minor segment up
  for (size_t k = dim.size(); k-- > 0;) {
    const Seg& s = dim[k];
    Tensor own = k == 0 ? rest : remainder(rest, s.extent);
    if (k > 0) rest = floor_divide(rest, s.extent);
    const int64_t extent = local_extent(mesh, s, c.locals.rank());
    if (s.layout == SegLayout::kHeadTail) {
      const int64_t n = mesh.parts(s.axes);
      WEFT_CHECK(s.extent % (2 * n) == 0, c.node.op->name, ": ", s.extent, " positions do not divide into ", 2 * n,
                 " chunks, head to tail");
      const int64_t chunk = s.extent / (2 * n);
      const Tensor i = c.locals.coordinate(s.axes);
      const Tensor which = floor_divide(own, chunk), head = eq(which, i), tail = eq(which, 2 * n - 1 - i);
      own = where(head, own - i * chunk, own - (2 * n - 2 - i) * chunk);
      inside = both(inside, logical_or(head, tail));
    } else if (s.layout == SegLayout::kTable) {
      const Tensor place = index_select(c.locals.positions().places, 0, reshape(own, {-1}));
      own = reshape(place, own.shape()) - block_begin(c.locals, s);
      inside = both(inside, logical_and(ge(own, int64_t{0}), lt(own, extent)));
    } else if (!s.axes.empty()) {
      own = own - block_begin(c.locals, s);
      inside = both(inside, logical_and(ge(own, int64_t{0}), lt(own, extent)));
    }
    at = at.defined() ? at + own * stride : own;
    stride *= extent;
  }
  return {where(inside, at, int64_t{0}), inside};
}

Tensor shaped_like(const Tensor& flags, const Shape& shape, int dim) {
  if (flags.dim() == shape.size()) return flags;
  Shape s = Shape::filled(shape.size(), 1);
  s[dim] = flags.size(0);
  return broadcast_to(reshape(flags, s), shape);
}

// Rows on other ranks give zeros, so that the results are terms of a sum over the ranks.
std::vector<Tensor> local_lookup(const LocalCall& c) {
  const int64_t dim = c.node.attrs.i("dim");
  const DimSpec& own = factor_split(c, c.rule.map.in[0], dim);
  if (whole(own)) return same_op(c, c.node.attrs);
  if (c.in[0].size(dim) == 0) return {zeros(result_shape(c, 0), {.dtype = c.in[0].dtype()})};
  const Owned at = owned(c, own, c.in[1]);
  const Tensor in[] = {c.in[0], at.index};
  SmallVec<const Tensor*, 4> ptrs;
  const Tensor y = dispatch(*c.node.op, pointers(in, ptrs), c.node.attrs, c.node.line);
  return {where(shaped_like(at.inside, y.shape(), static_cast<int>(dim)), y, zeros_like(y))};
}

// Rows on other ranks become zeros that are added to row 0.
std::vector<Tensor> local_add(const LocalCall& c) {
  const int64_t dim = indexed_dim(c.node);
  const DimSpec& own = factor_split(c, c.rule.map.in[0], dim);
  if (whole(own)) return same_op(c, c.node.attrs);
  if (c.in[0].size(dim) == 0) return {c.in[0]};
  const Owned at = owned(c, own, c.in[1]);
  const Tensor& src = c.in[2];
  const Tensor in[] = {c.in[0], at.index,
                       where(shaped_like(at.inside, src.shape(), static_cast<int>(dim)), src, zeros_like(src))};
  SmallVec<const Tensor*, 4> ptrs;
  return {dispatch(*c.node.op, pointers(in, ptrs), c.node.attrs, c.node.line)};
}

std::vector<Tensor> local_iota(const LocalCall& c) {
  const DimSpec& dim = c.split[0];
  if (whole(dim)) return same_op(c, c.node.attrs);
  // Computes like the kernel: in f64 (integers in i64), rounded once.
  const AttrValue &start = *c.node.attrs.find("start"), &step = *c.node.attrs.find("step");
  const DType dtype = c.node.attrs.get<DType>("dtype");
  const Tensor at = global_index(c.locals, dim);
  if (std::holds_alternative<int64_t>(start) && std::holds_alternative<int64_t>(step))
    return {(at * std::get<int64_t>(step) + std::get<int64_t>(start)).to(dtype)};
  auto real = [](const AttrValue& v) {
    return std::holds_alternative<double>(v) ? std::get<double>(v) : static_cast<double>(std::get<int64_t>(v));
  };
  return {(at.to(kFloat64) * real(step) + real(start)).to(dtype)};
}

std::vector<Tensor> local_random(const LocalCall& c) {
  const Shape& global = c.node.outputs[0].shape;
  bool split = false;
  for (const DimSpec& d : c.split) split |= !whole(d);
  if (!split) return same_op(c, c.node.attrs);
  // Each segment becomes a dim. A head-tail segment becomes two dims: the chunk and the position in it.
  Shape shape, strides;
  const bool placed = c.node.op == &random_bits_at_op;
  Tensor base = placed ? c.in[2] : Tensor();
  auto add = [&](const Tensor& t) { base = base.defined() ? base + t : t; };
  const Shape outer = placed ? c.node.attrs.ints("strides") : contiguous_strides(global);
  int listed = -1;                         // the dim with SegLayout::kTable
  Tensor places;                           // contribution of its positions to base
  std::vector<std::pair<int, Seg>> tails;  // head-tail dims: one call for each chunk
  for (int d = 0; d < global.size(); ++d) {
    const std::vector<Seg> segs = segments(c, c.rule.map.out[0][d]);
    int64_t stride = outer[d];
    for (const Seg& s : segs) stride *= s.extent;
    if (segs.empty()) {
      shape.push_back(global[d]);
      strides.push_back(outer[d]);
    }
    for (const Seg& s : segs) {
      stride /= std::max<int64_t>(1, s.extent);
      if (s.layout == SegLayout::kHeadTail) tails.emplace_back(shape.size(), s);
      shape.push_back(local_extent(c.locals.mesh(), s, c.locals.rank()));
      strides.push_back(stride);
      if (s.axes.empty() || s.layout == SegLayout::kHeadTail) continue;
      if (s.layout == SegLayout::kTable) {
        WEFT_BUG_IF(listed >= 0, "random words: two dims with a table of positions");
        listed = shape.size() - 1;
        places = global_index(c.locals, one_segment(s.extent, s.axes, s.layout)) * stride;
        strides[listed] = 0;
        continue;
      }
      add(block_begin(c.locals, s) * stride);
    }
  }
  if (!base.defined()) base = scalar(0);
  if (listed >= 0) {
    Shape along = Shape::filled(shape.size(), 1);
    along[listed] = shape[listed];
    base = base + reshape(places, along);
  }
  const Attrs attrs = c.node.attrs.without("shape").with("strides", strides);
  auto words = [&](const Shape& own, const Tensor& at) {
    return dispatch(random_bits_at_op, {&c.in[0], &c.in[1], &at}, attrs.with("shape", own), c.node.line);
  };
  std::function<Tensor(size_t, const Shape&, const Tensor&)> draw = [&](size_t tail, const Shape& own,
                                                                        const Tensor& at) -> Tensor {
    if (tail == tails.size()) return words(own, at);
    const auto& [dim, seg] = tails[tail];
    const int64_t n = c.locals.mesh().parts(seg.axes);
    WEFT_CHECK(seg.extent % (2 * n) == 0, c.node.op->name, ": ", seg.extent, " positions do not divide into ", 2 * n,
               " chunks, head to tail");
    const int64_t chunk = seg.extent / (2 * n);
    const Tensor i = c.locals.coordinate(seg.axes);
    Shape half = own;
    half[dim] = chunk;
    return cat({draw(tail + 1, half, at + i * (chunk * strides[dim])),
                draw(tail + 1, half, at + (2 * n - 1 - i) * (chunk * strides[dim]))},
               dim);
  };
  const Tensor y = draw(0, shape, base);
  return {reshape(y, result_shape(c, 0))};
}

// A rank whose part of a reduced dim is empty gives the neutral element.
std::vector<Tensor> local_extreme(const LocalCall& c) {
  if (c.in[0].numel() > 0) return same_op(c, c.node.attrs);
  const DType t = c.in[0].dtype();
  const bool least = c.node.op->reduction == Reduction::kMax;
  const Shape shape = result_shape(c, 0);
  if (is_floating(t))
    return {full(shape, least ? -std::numeric_limits<double>::infinity() : std::numeric_limits<double>::infinity(),
                 {.dtype = t})};
  const int bits = static_cast<int>(itemsize(t)) * 8;
  const bool sign = t != kUInt8 && t != kBool;
  const int64_t lowest = sign ? std::numeric_limits<int64_t>::min() >> (64 - bits) : 0;
  const int64_t greatest = t == kBool ? 1
                           : sign     ? std::numeric_limits<int64_t>::max() >> (64 - bits)
                                      : (int64_t{1} << bits) - 1;
  return {broadcast_to(constant(least ? lowest : greatest, t), shape)};
}

std::vector<Tensor> local_slice(const LocalCall& c) {  // does not cut split dims
  Shape begin = c.node.attrs.ints("begin"), end = c.node.attrs.ints("end");
  for (int d = 0; d < begin.size(); ++d) {
    const auto& f = c.rule.map.in[0][d];
    if (f.empty() || c.node.outputs[0].shape[d] != c.graph.type(c.node.inputs[0]).shape[d]) continue;
    begin[d] = 0;
    end[d] = c.in[0].size(d);
  }
  return same_op(c, c.node.attrs.with("begin", begin).with("end", end));
}

std::vector<Tensor> local_shape(const LocalCall& c) {
  return same_op(c, c.node.attrs.with("shape", result_shape(c, 0)));
}

std::vector<Tensor> local_sizes(const LocalCall& c) {
  return same_op(c, c.node.attrs.with("sizes", result_shape(c, 0)));
}

}  // namespace

std::vector<Tensor> local_attention(const LocalCall& c);  // local_attention.cc

namespace {

struct LocalRow {
  const OpDef* op;
  std::vector<Tensor> (*emit)(const LocalCall&);
};
// The ops that a rank computes with other attributes or operands than one device. All others stay the same.
constexpr LocalRow kLocalRows[] = {
    {&reshape_op, local_shape},       {&broadcast_op, local_shape},       {&window_sum_op, local_shape},
    {&slice_op, local_slice},         {&dynamic_slice_op, local_sizes},   {&iota_op, local_iota},
    {&random_bits_op, local_random},  {&random_bits_at_op, local_random}, {&attention_op, local_attention},
    {&index_select_op, local_lookup}, {&gather_op, local_lookup},         {&attention_backward_op, local_attention},
    {&index_add_op, local_add},       {&scatter_add_op, local_add},       {&reduce_max_op, local_extreme},
    {&reduce_min_op, local_extreme},
};

}  // namespace

Tensor block_begin(Locals& locals, const Seg& seg) {
  if (seg.axes.empty()) return scalar(0);
  const int64_t n = locals.mesh().parts(seg.axes);
  const Tensor i = locals.coordinate(seg.axes);
  return seg.extent % n == 0 ? i * (seg.extent / n) : floor_divide(i * seg.extent, n);
}

Tensor global_index(Locals& locals, const DimSpec& dim) {
  Tensor all;
  for (const Seg& s : dim) {
    const int64_t extent = local_extent(locals.mesh(), s, locals.rank());
    Tensor own;
    if (s.layout == SegLayout::kHeadTail) {
      const int64_t n = locals.mesh().parts(s.axes);
      WEFT_CHECK(s.extent % (2 * n) == 0, "a dim of ", s.extent, " does not divide into ", 2 * n,
                 " chunks, head to tail");
      const int64_t chunk = s.extent / (2 * n);
      const Tensor i = locals.coordinate(s.axes);
      own = cat({iota(chunk) + i * chunk, iota(chunk) + (2 * n - 1 - i) * chunk}, 0);
    } else if (s.layout == SegLayout::kTable) {
      own = dynamic_slice(locals.positions().positions, {block_begin(locals, s)}, {extent});
    } else {
      own = s.axes.empty() ? iota(extent) : iota(extent) + block_begin(locals, s);
    }
    all = !all.defined() ? own : reshape(unsqueeze(all, 1) * s.extent + unsqueeze(own, 0), {all.size(0) * extent});
  }
  return all;
}

// Whether this rank's part of every result is empty, for example if there are fewer heads than ranks.
bool nothing_here(const LocalCall& c) {
  if (c.node.outputs.empty() || c.node.op->is(kSideEffect) || c.node.op->is(kCollective)) return false;
  bool anywhere = false;
  for (size_t i = 0; i < c.node.outputs.size(); ++i) {
    if (result_shape(c, i).numel() > 0) return false;
    anywhere |= c.node.outputs[i].shape.numel() > 0;
  }
  return anywhere;
}

std::vector<Tensor> local_op(const LocalCall& call) {
  LocalCall c = call;
  if (nothing_here(c)) {
    std::vector<Tensor> none;
    for (size_t i = 0; i < c.node.outputs.size(); ++i)
      none.push_back(zeros(result_shape(c, i), {.dtype = c.node.outputs[i].dtype}));
    return none;
  }
  if (c.lowering) return c.lowering->emit(c);
  std::vector<Tensor> in(c.in.begin(), c.in.end());
  if (const std::optional<Indices> at = indices_of(c.graph, c.node)) {
    in[at->operand] = checked(c, *at);
    c.in = in;
  }
  for (const LocalRow& row : kLocalRows)
    if (c.node.op == row.op) return row.emit(c);
  return same_op(c, c.node.attrs);
}

}  // namespace weft::dist
