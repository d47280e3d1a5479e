#include "compiler/passes/fusion/fuse_graph.h"

#include <algorithm>

#include "compiler/loop_ir/index_map.h"
#include "compiler/loop_ir/lower_group.h"
#include "compiler/passes/dce.h"
#include "framework/autodiff/grad.h"
#include "framework/ir/op_def.h"
#include "ops/core/creation.h"
#include "ops/core/indexing/index.h"
#include "ops/core/products/dot.h"

namespace weft::fusion {
namespace {

constexpr int kMaxFreeChain = 16;
// A mask that stays in cache and is read many times is cheaper to read than to compute, because positions are 64-bit.
constexpr int64_t kSmallMask = 1 << 20, kManyTimes = 4, kLeastMask = 256;

/// How index_select reads its indices: each one serves all positions before and after the dim.
Spread index_spread(const Shape& out, int dim) {
  int64_t before = 1, after = 1;
  for (int d = 0; d < out.size(); ++d)
    if (d != dim) (d < dim ? before : after) *= out[d];
  if (before == 1) return {true, out[dim], after, 1};
  if (after == 1) return {true, 1, before, out[dim]};
  return {.regular = false};
}

/// The dims for which in_block(d) is true as the middle block, if they are adjacent.
template <class F>
Spread block_spread(const Shape& shape, const F& in_block) {
  Spread s;
  int phase = 0;  // before, in, after the block
  for (int d = 0; d < shape.size(); ++d) {
    if (shape[d] == 1) continue;
    if (in_block(d)) {
      if (phase == 2) return {.regular = false};
      phase = 1;
      s.b *= shape[d];
    } else {
      if (phase == 1) phase = 2;
      (phase == 0 ? s.a : s.c) *= shape[d];
    }
  }
  return s;
}

/// The repeated dims of a broadcast as one block.
Spread broadcast_spread(const Shape& in, const Shape& out) {
  const int shift = out.size() - in.size();
  return block_spread(out, [&](int d) { return d < shift || in[d - shift] != out[d]; });
}

Spread identity(int64_t n) { return {true, n, 1, 1}; }

}  // namespace

Spread reduced_spread(const Shape& shape, const Shape& dims) {
  return block_spread(shape, [&](int d) { return std::find(dims.begin(), dims.end(), d) != dims.end(); });
}

Spread compose(const Spread& x, const Spread& y) {
  if (!x.regular || !y.regular) return {.regular = false};
  if (x.b == 1) return y;
  if (y.b == 1) return x;
  // y repeats where the middle value has y.a elements before; the block that x repeats spans x.a to x.a * x.b.
  if (y.a == x.a || y.a == x.a * x.b) return {true, x.a, x.b * y.b, x.c};
  return {.regular = false};
}

FusionGraph::FusionGraph(const Graph& g, bool free_chains) : g_(g), live_(live_nodes(g)) {
  const int32_t n = g.size();
  role_.assign(n, Role::kDead);
  written_.assign(n, false);
  root_.resize(n);
  spread_.resize(n);
  strides_.resize(n);
  whole_.assign(n, true);
  chain_.assign(n, 0);
  library_calls_before_.assign(n, 0);
  first_value_.assign(n + 1, 0);
  for (int32_t id = 0; id < n; ++id)
    first_value_[id + 1] = first_value_[id] + static_cast<int32_t>(g.node(id).outputs.size());
  pinned_.assign(first_value_[n], false);
  classify(free_chains);
  connect();
  order_edges();
}

int64_t FusionGraph::points(int32_t id) const {
  const Node& n = g_.node(id);
  return role_[id] == Role::kReduction ? g_.type(n.inputs[0]).shape.numel()
                                       : (n.outputs.empty() ? 0 : n.outputs[0].shape.numel());
}

bool FusionGraph::fusible(const Node& n) const {
  if (n.outputs.size() != 1 || n.op->is(kSideEffect) || n.op->is(kRandom) || !loop_ir::can_fuse(n)) return false;
  if (n.outputs[0].shape.numel() == 0) return false;
  for (Value v : n.inputs)
    if (g_.type(v).shape.numel() == 0 || g_.type(v).dtype >= kFloat8E4M3)
      return false;  // generated code has no 8-bit floats
  return true;
}

void FusionGraph::classify(bool free_chains) {
  std::vector<bool> reread(g_.size());
  for (int32_t id = 0; id < g_.size(); ++id) {
    const Node& n = g_.node(id);
    if (!is_broadcast(n) || !g_.node(n.inputs[0]).op->is(kPointwise)) continue;
    const TensorType& t = g_.type(n.inputs[0]);
    reread[n.inputs[0].node] = t.nbytes() <= kSmallMask && t.shape.numel() >= kLeastMask &&
                               n.outputs[0].shape.numel() >= kManyTimes * t.shape.numel();
  }
  // Under a memory budget, recompute often keeps the result of a gather. So gathers stay separate values.
  bool saves = false;
  for (int32_t id = 0; id < g_.size(); ++id) saves |= g_.node(id).recomputed;
  int32_t library_calls = 0;
  for (int32_t id = 0; id < g_.size(); ++id) {
    library_calls_before_[id] = library_calls;
    if (!live_[id]) continue;
    const Node& n = g_.node(id);
    Role& role = role_[id];
    if (is_leaf(n)) {
      role = Role::kSource;
      continue;
    }
    const bool fuse = fusible(n) && !(saves && n.op->is(kPicks));
    if (fuse && n.op->is(kFromAttrs) && (free_chains || n.op == &constant_op)) {
      role = Role::kFree;
      chain_[id] = 1;
      continue;
    }
    if (fuse && !n.op->is(kPicks) && !n.op->is(kReduction) && (free_chains || loop_ir::is_index_map(n)) &&
        !reread[id]) {
      int ops = 1;
      for (Value v : n.inputs) ops += role_[v.node] == Role::kFree ? chain_[v.node] : kMaxFreeChain;
      if (ops <= kMaxFreeChain && !n.inputs.empty()) {
        role = Role::kFree;
        chain_[id] = static_cast<uint8_t>(ops);
        continue;
      }
    }
    if (loop_ir::is_index_map(n)) {
      // A view of memory if its source is row-major; otherwise elements must move.
      const Value x = n.inputs[0];
      const bool of_view = role_[x.node] == Role::kView;
      const Shape from = of_view ? strides_[x.node] : contiguous_strides(g_.type(x).shape);
      Shape strides;
      int64_t offset = 0;
      const TensorType& t = g_.type(x);
      if (n.op->view && n.op->view(n.attrs, {nullptr, t.dtype, t.shape, from}, n.outputs[0], &strides, &offset)) {
        role = Role::kView;
        root_[id] = root(x);
        strides_[id] = strides;
        whole_[id] = (!of_view || whole_[x.node]) && !is_part(n);
        const Spread first = of_view ? spread_[x.node] : identity(t.shape.numel());
        spread_[id] = compose(first, spread_of({id, 0}));
        continue;
      }
    }
    if (loop_ir::is_product(n) && n.outputs[0].shape.numel() > 0 && g_.type(n.inputs[0]).shape.numel() > 0 &&
        g_.type(n.inputs[1]).shape.numel() > 0) {
      role = Role::kProduct;
    } else if (fuse && n.op->is(kReduction)) {
      role =
          reduced_spread(g_.type(n.inputs[0]).shape, n.attrs.ints("dims")).regular ? Role::kReduction : Role::kLibrary;
      if (reduced_spread(g_.type(n.inputs[0]).shape, n.attrs.ints("dims")).b == 1) role = Role::kLibrary;
    } else if (fuse && !n.inputs.empty()) {
      role = Role::kPointwise;
    } else {
      role = Role::kLibrary;
    }
    if (role == Role::kProduct || role == Role::kLibrary) ++library_calls;
  }
}

/// The spread of one view node, from its operand.
Spread FusionGraph::spread_of(Value v) const {
  const Node& n = g_.node(v);
  const Shape &in = g_.type(n.inputs[0]).shape, &out = n.outputs[0].shape;
  if (is_broadcast(n)) return broadcast_spread(in, out);
  if (n.op->placing == Placing::kPermute) {
    int64_t last = -1;
    for (int64_t d : n.attrs.ints("dims")) {
      if (in[static_cast<int>(d)] == 1) continue;
      if (d < last) return {.regular = false};
      last = d;
    }
    return identity(out.numel());
  }
  if (is_part(n) && !(in == out)) return {.regular = false};
  return identity(out.numel());
}

void FusionGraph::connect() {
  const int32_t n = g_.size();
  first_read_.assign(n + 1, 0);
  first_reader_.assign(n + 1, 0);
  for (int32_t id = 0; id < n; ++id) {
    first_read_[id] = static_cast<int32_t>(reads_.size());
    if (!is_unit(id)) continue;
    const Node& node = g_.node(id);
    const bool copy = loop_ir::is_index_map(node);
    for (Value v : node.inputs) {
      if (role_[v.node] == Role::kFree) continue;
      const bool view = role_[v.node] == Role::kView;
      Read r{root(v), id, view ? spread_[v.node] : identity(g_.type(v).shape.numel()), !view || whole_[v.node]};
      const int64_t points = this->points(id);
      if (role_[id] == Role::kPointwise && !copy && g_.type(v).shape.empty() && points > 1)
        r.map = compose(r.map, {true, 1, points, 1});
      if (copy) r.map = compose(r.map, spread_of({id, 0}));
      if (node.op->is(kPicks)) follow_gather(node, &v - node.inputs.begin(), r);
      reads_.push_back(r);
      ++first_reader_[r.value.node + 1];
    }
  }
  first_read_[n] = static_cast<int32_t>(reads_.size());
  for (int32_t id = 0; id < n; ++id) first_reader_[id + 1] += first_reader_[id];
  readers_.resize(reads_.size());
  std::vector<int32_t> at(first_reader_.begin(), first_reader_.end() - 1);
  for (int32_t i = 0; i < static_cast<int32_t>(reads_.size()); ++i) readers_[at[reads_[i].value.node]++] = i;
  for (Value v : g_.outputs) pinned_[value_id(root(v))] = true;
  for (const CellWrite& w : g_.writes) {
    pinned_[value_id(root(w.value))] = true;
    written_[root(w.value).node] = true;
  }
}

/// Describes in r, the read of operand `k`, how its elements are gathered.
void FusionGraph::follow_gather(const Node& n, int64_t k, Read& r) const {
  const int dim = static_cast<int>(n.attrs.i("dim"));
  const Shape &x = g_.type(n.inputs[0]).shape, &index = g_.type(n.inputs[1]).shape;
  if (k == 1) {
    if (n.op == &index_select_op) r.map = compose(r.map, index_spread(n.outputs[0].shape, dim));
    return;
  }
  // One element of each row: gather along the last dim.
  bool rows = n.op == &gather_op && dim == x.size() - 1 && index[dim] == 1 && r.map.linear();
  for (int d = 0; d < dim && rows; ++d) rows = x[d] == index[d];
  r.gathered = true;
  r.row = rows ? x[dim] : 0;
  r.map = {.regular = false};
}

bool FusionGraph::chooses(int32_t id) const { return g_.node(id).op->is(kPicks); }

bool FusionGraph::scatters_reads(int32_t id) const {
  const Node& n = g_.node(id);
  if (!n.op->is(kPicks)) return false;
  const Shape& out = n.outputs[0].shape;
  return n.op == &gather_op || n.attrs.i("dim") == out.size() - 1;
}

void FusionGraph::order_edges() {
  before_.resize(g_.size());
  after_.resize(g_.size());
  auto edge = [&](int32_t from, int32_t to) {
    after_[from].push_back(to);
    before_[to].push_back(from);
  };
  std::vector<int32_t> cell(g_.cells.size(), -1);
  int32_t effect = -1;
  for (int32_t id = 0; id < g_.size(); ++id) {
    if (!live_[id]) continue;
    const Node& n = g_.node(id);
    if (is_cell(n)) cell[n.attrs.i("index")] = id;
    if (!n.op->is(kSideEffect) && !n.op->is(kOrdered)) continue;
    if (effect >= 0) edge(effect, id);
    effect = id;
  }
  for (const CellWrite& w : g_.writes) {
    const int32_t writer = root(w.value).node;
    if (cell[w.cell] < 0 || !is_unit(writer)) continue;
    for (int32_t i : readers(cell[w.cell]))
      if (reads_[i].node < writer) edge(reads_[i].node, writer);
  }
}

}  // namespace weft::fusion
