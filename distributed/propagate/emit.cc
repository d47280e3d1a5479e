#include "distributed/propagate/emit.h"

#include <algorithm>
#include <map>
#include <set>

#include "distributed/placement/replica.h"
#include "distributed/propagate/local_op.h"
#include "framework/dispatch/capture.h"
#include "framework/dispatch/dispatch.h"
#include "ops/composite/layers/moe_ep.h"
#include "ops/core/collectives/collective.h"
#include "ops/core/core.h"

namespace weft::dist {
namespace {

using internal::OriginScope;

struct LocalVersion : Version {
  Tensor local;
};

const char* op_name(ReduceOp op) {
  static constexpr const char* kNames[] = {"sum", "avg", "max", "min"};
  return kNames[static_cast<int>(op)];
}

bool is_even(std::span<const int64_t> sizes) {
  for (int64_t s : sizes)
    if (s != sizes[0]) return false;
  return true;
}

class Emitter final : public Locals {
 public:
  Emitter(const Mesh& mesh, const Graph& g, const Decision& d, const Pins& pins, int rank)
      : mesh_(mesh), g_(g), d_(d), pins_(pins), rank_(rank), capture_(Capture::kStep) {}

  LocalGraph run() {
    NoGrad guard;
    Graph& to = capture_.graph();
    to.captured = g_.captured;
    to.inputs.resize(g_.inputs.size());
    for (size_t c = 0; c < g_.cells.size(); ++c) {
      const Cell& global = *g_.cells[c];
      auto cell = make_ref<Cell>();
      cell->name = global.name;
      cell->type = global.type;
      cell->type.shape = local_shape(mesh_, d_.cells[c].rest, rank_);
      cell->is_parameter = global.is_parameter;
      cell->requires_grad = global.requires_grad;
      to.cells.push_back(cell);
    }
    versions_.resize(static_cast<size_t>(g_.size()));
    for (int32_t id = 0; id < g_.size(); ++id) versions_[id].resize(g_.node(id).outputs.size());
    follows_gradient_ = follows_gradients(g_);
    for (int32_t id = 0; id < g_.size(); ++id) node(id);
    std::vector<Tensor> out;
    for (size_t i = 0; i < g_.outputs.size(); ++i)
      out.push_back(get(g_.outputs[i], d_.outputs[i], nullptr, "the result"));
    for (const CellWrite& w : g_.writes) {
      const Spec& rest = d_.cells[w.cell].rest;
      written_ = w.cell;
      to.writes.push_back({w.cell, capture_.value_of(get(w.value, rest, nullptr, "the cell at rest"))});
    }
    written_ = -1;
    LocalGraph r{capture_.finish(out), std::move(collectives_)};
    r.graph->stage = "partitioned";
    return r;
  }

  const Mesh& mesh() const override { return mesh_; }
  int rank() const override { return rank_; }
  Tensor coordinate(const Axes& axes) override {
    const std::string name = mesh_.name(axes);
    if (const Tensor& known = coordinates_[name]; known.defined()) return known;
    Tensor t;
    if (axes.size() > 1 && axes[0] == replica_axis(mesh_)) {  // a communicator over replicas has no other axes
      const Axes inner(std::span(axes.begin() + 1, axes.end()));
      const Tensor place = coordinate(Axes(std::span(axes.begin(), 1)));
      t = place * static_cast<int64_t>(mesh_.parts(inner)) + coordinate(inner);
    } else {
      t = dispatch(rank_coordinate_op, {}, {{"axes", name}});
    }
    return coordinates_[name] = t;
  }

  // Every rank makes the whole table from the whole arguments.
  const PositionTable& positions() override {
    if (positions_.positions.defined()) return positions_;
    WEFT_BUG_IF(!pins_.positions.make, "emit: a dim has SegLayout::kTable and the pins have no source of positions");
    std::vector<Tensor> from;
    for (Value v : pins_.positions.from) from.push_back(on_every_rank(v));
    positions_.positions = pins_.positions.make(from);
    positions_.places = argsort(positions_.positions, 0);
    return positions_;
  }

 private:
  std::vector<LocalVersion>& versions(Value v) { return versions_[v.node][v.index]; }

  void node(int32_t id) {
    const Node& n = g_.node(id);
    const NodeChoice& c = d_.nodes[id];
    if (is_argument(n)) {
      const auto index = static_cast<size_t>(n.attrs.i("index"));
      Node copy = n;
      const int32_t now = capture_.graph().add(std::move(copy));
      capture_.graph().inputs[index] = {now, 0};
      versions({id, 0}).push_back({{Spec::replicated(n.outputs[0].shape)}, capture_.wrap({now, 0})});
      return;
    }
    if (is_kept(n)) {
      Node copy = n;
      if (is_cell(n)) copy.outputs[0] = capture_.graph().cells[n.attrs.i("index")]->type;
      const int32_t now = capture_.graph().add(std::move(copy));
      versions({id, 0}).push_back(
          {{is_cell(n) ? c.out[0] : Spec::replicated(n.outputs[0].shape)}, capture_.wrap({now, 0})});
      return;
    }
    if (c.free) return;
    const OriginScope at(n, n.backward);
    const Rule rule = rule_of(g_, n);
    std::vector<Tensor> in;
    for (size_t i = 0; i < n.inputs.size(); ++i) in.push_back(get(n.inputs[i], c.in[i], &n, str_cat("operand ", i)));
    if (rule.offsets >= 0)
      if (const DimSpec& rows = c.split[rule.rows]; is_rows(rows) && rows[0].layout == SegLayout::kByExpert)
        in[rule.offsets] = exchange(n.inputs[rule.offsets].node, rows[0].experts).offsets;
    const std::vector<Tensor> out = local_op({n, g_, rule, c.split, c.lowering, in, *this});
    for (size_t i = 0; i < out.size(); ++i) {
      const Value v{id, static_cast<int32_t>(i)};
      check(n, out[i], c.out[i]);
      Tensor t = out[i];
      if (!(c.settled[i] == c.out[i])) t = move(t, c.out[i], c.settled[i], v, &n, "its terms are reduced at once");
      versions(v).push_back({{c.settled[i]}, t});
    }
  }

  // The whole value of a node that depends on arguments only.
  Tensor on_every_rank(Value v) {
    const Node& n = g_.node(v);
    if (is_unwritten_leaf(n)) return versions(v).front().local;
    std::vector<Tensor>& done = whole_[v.node];
    if (done.empty()) {
      std::vector<Tensor> in;
      for (Value operand : n.inputs) in.push_back(on_every_rank(operand));
      SmallVec<const Tensor*, 4> ptrs;
      for (const Tensor& t : in) ptrs.push_back(&t);
      const OriginScope at(n, n.backward);
      done = dispatch_multi(*n.op, TensorPtrs(ptrs), n.attrs, n.line);
    }
    return done[v.index];
  }

  Tensor own_positions(const Axes& axes) {
    return global_index(*this, one_segment(positions().positions.size(0), axes, SegLayout::kTable));
  }

  void check(const Node& n, const Tensor& t, const Spec& spec) const {
    const Shape need = local_shape(mesh_, spec, rank_);
    WEFT_BUG_IF(t.shape() != need, "emit: ", n.op->name, " at ", n.line.to_string(), " gives ", t.shape(), " on rank ",
                rank_, "; need ", need, " for ", to_string(mesh_, spec));
  }

  bool visible(const Version& v, bool parameter, bool again, const Node* user) const {
    return !v.gathered || !user || v.backward == user->backward || (parameter ? !again : pins_.keep_gathered);
  }

  // The pin of the only cell from which v is made; null if v is made from more.
  const CellPin* parameter_of(Value v) const {
    for (;;) {
      const Node& n = g_.node(v);
      if (is_cell(n)) return &d_.cells[n.attrs.i("index")];
      if (n.inputs.size() != 1 || n.outputs.size() != 1 || (!n.op->is(kPointwise) && !is_rearranged(n))) return nullptr;
      v = n.inputs[0];
    }
  }

  Tensor get(Value v, const Spec& want, const Node* user, const std::string& what) {
    const bool free = d_.nodes[v.node].free;
    const std::vector<LocalVersion>& have = versions(v);
    const CellPin* parameter = free ? nullptr : parameter_of(v);
    const auto seen = [&](const Version& x) {
      return visible(x, parameter != nullptr, parameter && parameter->gather_again, user);
    };
    LocalVersion made{{want, false, user && user->backward}, {}};
    if (free) {
      for (const LocalVersion& x : have)
        if (seen(x) && x.spec == want) return x.local;
      made.local = make_free(v, want);
    } else {
      const Source<LocalVersion> from = cheapest(mesh_, have, want, g_.type(v).dtype, seen);
      WEFT_BUG_IF(!from.version, "emit: no version of an operand");
      const LocalVersion& x = *from.version;
      if (x.spec == want) return x.local;
      made.gathered = is_gather(from.stages) || x.gathered;
      made.local = apply(x.local, from.stages, v, user,
                         str_cat(what, " needs ", to_string(mesh_, want), "; it has ", to_string(mesh_, x.spec)));
    }
    versions(v).push_back(made);
    return made.local;
  }

  Tensor make_free(Value v, const Spec& want) {
    const Node& n = g_.node(v);
    const OriginScope at(n, n.backward);
    if (!is_unwritten_leaf(n)) {
      const Rule rule = rule_of(g_, n);
      const FactorSplit split = split_of(mesh_, rule, rule.map.out[v.index], want);
      const Spec direct = result_spec(mesh_, rule, static_cast<size_t>(v.index), split);
      if (direct == want) {
        std::vector<Tensor> in;
        for (size_t i = 0; i < n.inputs.size(); ++i)
          in.push_back(get(n.inputs[i], operand_spec(mesh_, rule, i, split), &n, "operand"));
        Tensor t = local_op({n, g_, rule, split, nullptr, in, *this})[v.index];
        check(n, t, want);
        return t;
      }
    }
    Spec base = Spec::replicated(n.outputs[v.index].shape);
    if (!want.pending.empty()) {
      base = want;
      base.pending = {};
      if (is_zero(v)) return get(v, base, &n, "zeros");
    }
    return apply(get(v, base, &n, "the whole"), reshard(mesh_, base, want), v, &n, "");
  }

  bool is_zero(Value v) const {
    const Node* const n = constant_behind(g_, v, true);
    if (!n) return false;
    const AttrValue& x = *n->attrs.find("value");
    return std::holds_alternative<double>(x) ? std::get<double>(x) == 0
                                             : std::holds_alternative<int64_t>(x) && std::get<int64_t>(x) == 0;
  }

  Tensor move(const Tensor& t, const Spec& from, const Spec& to, Value v, const Node* user, const std::string& why) {
    return apply(t, reshard(mesh_, from, to), v, user, why);
  }

  Tensor apply(Tensor t, const std::vector<ReshardStage>& stages, Value v, const Node* user, const std::string& why) {
    for (const ReshardStage& stage : stages) {
      std::vector<SpecPart> parts = stage.parts;
      auto exposed = [&] {
        Shape s;
        for (const SpecPart& p : parts)
          s.push_back(local_extent(mesh_, Seg{p.extent, p.axes, p.layout, p.room}, rank_));
        return s;
      };
      const Shape view = exposed();
      if (t.shape() != view) t = reshape(t, view);
      for (const ReshardStep& step : stage.steps) t = take_step(t, step, parts, v, user, why);
      Shape dims;
      int last = -1;
      for (const SpecPart& p : parts) {
        const int64_t n = local_extent(mesh_, Seg{p.extent, p.axes, p.layout, p.room}, rank_);
        if (p.dim == last) {
          dims.back() *= n;
        } else {
          dims.push_back(n);
        }
        last = p.dim;
      }
      if (t.shape() != dims) t = reshape(t, dims);
    }
    return t;
  }

  std::vector<int64_t> peer_extents(const SpecPart& part, const Axes& along) const {
    std::vector<int64_t> sizes;
    for (int peer : mesh_.group(rank_, along))
      sizes.push_back(local_extent(mesh_, Seg{part.extent, part.axes, part.layout}, peer));
    return sizes;
  }

  void note(Collective kind, const ReshardStep& step, const Tensor& before, const Tensor& after, Value v,
            const Node* user, const std::string& why) {
    const Node& n = g_.node(v);
    const int32_t gradient = d_.gradient_of[v.node];
    PlannedCollective c{.kind = kind, .axes = mesh_.name(step.axes), .op = step.op, .dtype = before.dtype()};
    c.bytes = std::max(before.type().nbytes(), after.type().nbytes());
    c.site = sites_;
    const bool follows = follows_gradient_[v.node];
    int32_t cell = written_;
    if (parameter_of(v)) {
      Value at = v;
      while (!is_cell(g_.node(at))) at = g_.node(at).inputs[0];
      cell = static_cast<int32_t>(g_.node(at).attrs.i("index"));
    }
    if (cell >= 0) {
      c.subject = Subject::kParameter;
      c.phase = user && user->backward ? Phase::kBackward : follows ? Phase::kUpdate : Phase::kForward;
    } else {
      c.subject = gradient >= 0 ? Subject::kGradient : Subject::kActivation;
      c.phase = n.backward || (user && user->backward) ? Phase::kBackward : follows ? Phase::kUpdate : Phase::kForward;
      cell = gradient;
    }
    c.what = cell >= 0 ? g_.cells[cell]->name : str_cat(n.scope, *n.scope ? ": " : "", n.op->name);
    c.line = n.line.to_string();
    if (user && user != &n)
      c.why = str_cat(user->op->name, user->line.line ? str_cat(" at ", user->line.to_string()) : "", ": ");
    c.why += why;
    collectives_.push_back(std::move(c));
  }

  // Converts a gradient to the type in which the plan sums gradients over ranks.
  Tensor sent(const Tensor& t, const ReshardStep& step, Value v) const {
    const bool gradient = d_.gradient_of[v.node] >= 0;
    return gradient && step.op == ReduceOp::kSum && t.dtype() == kFloat32 ? cast(t, pins_.wire) : t;
  }

  Tensor take_step(const Tensor& t, const ReshardStep& step, std::vector<SpecPart>& parts, Value v, const Node* user,
                   const std::string& why) {
    const std::string axes = mesh_.name(step.axes);
    const auto n = static_cast<int64_t>(mesh_.parts(step.axes));
    SpecPart no_part;  // for a move without a dim: a sum of pending values
    SpecPart& part = static_cast<size_t>(step.part) < parts.size() ? parts[step.part] : no_part;
    auto grow = [&](SpecPart& p, SegLayout layout) {
      for (int8_t a : step.axes) p.axes.push_back(a);
      p.layout = layout;
    };
    const int dim = step.part;
    switch (step.move) {
      case Move::kSlice: {
        const SpecPart before = part;
        grow(part, step.layout);
        return slice_of(t, dim, before, part);
      }
      case Move::kMakePending: {
        const Tensor mine = eq(coordinate(step.axes), int64_t{0});
        return where(mine, t, zeros_like(t));
      }
      case Move::kAllReduce: {
        const Tensor x = sent(t, step, v);
        const Tensor y =
            dispatch(all_reduce_op, {&x}, {{"axes", axes}, {"op", std::string(op_name(step.op))}, {"site", ++sites_}});
        note(Collective::kAllReduce, step, x, y, v, user, why);
        return cast(y, t.dtype());
      }
      case Move::kAllGather: {
        const std::vector<int64_t> sizes = peer_extents(part, step.axes);
        Attrs attrs{{"axes", axes}, {"dim", int64_t{dim}}, {"parts", n}, {"site", ++sites_}};
        if (!is_even(sizes)) attrs = attrs.with("sizes", sizes_text(sizes));
        Tensor y = dispatch(all_gather_op, {&t}, attrs);
        note(Collective::kAllGather, step, t, y, v, user, why);
        y = in_order(y, dim, part);
        shrink(part, step.axes.size());
        return y;
      }
      case Move::kReduceScatter: {
        grow(part, step.layout);
        const Tensor x = by_rank(sent(t, step, v), dim, part);
        const std::vector<int64_t> sizes = peer_extents(part, step.axes);
        Attrs attrs{{"axes", axes},
                    {"op", std::string(op_name(step.op))},
                    {"dim", int64_t{dim}},
                    {"parts", n},
                    {"site", ++sites_}};
        if (!is_even(sizes))
          attrs = attrs.with("sizes", sizes_text(sizes))
                      .with("extent", local_extent(mesh_, Seg{part.extent, part.axes, part.layout}, rank_));
        const Tensor y = dispatch(reduce_scatter_op, {&x}, attrs);
        note(Collective::kReduceScatter, step, x, y, v, user, why);
        return cast(y, t.dtype());
      }
      case Move::kAllToAll: {
        SpecPart& from = parts[step.from];
        const std::vector<int64_t> joined = peer_extents(from, step.axes);
        grow(part, step.layout);
        const Tensor x = by_rank(t, dim, part);
        const std::vector<int64_t> split = peer_extents(part, step.axes);
        Attrs attrs{{"axes", axes},
                    {"split_dim", int64_t{dim}},
                    {"concat_dim", int64_t{step.from}},
                    {"parts", n},
                    {"site", ++sites_}};
        if (!is_even(split))
          attrs = attrs.with("split_sizes", sizes_text(split))
                      .with("extent", local_extent(mesh_, Seg{part.extent, part.axes, part.layout}, rank_));
        if (!is_even(joined)) attrs = attrs.with("concat_sizes", sizes_text(joined));
        const Tensor y = dispatch(all_to_all_op, {&x}, attrs);
        note(Collective::kAllToAll, step, x, y, v, user, why);
        const Tensor ordered = in_order(y, step.from, from);
        shrink(from, step.axes.size());
        return ordered;
      }
      case Move::kRows: {
        const ExpertExchange& e = exchange(order_of(v), step.axes);
        const bool there = step.layout == SegLayout::kByExpert;
        WEFT_BUG_IF(there && e.rows != step.room, "emit: room for ", step.room, " rows by expert; need ", e.rows);
        const Tensor y = there ? rows_to_experts(t, e) : rows_from_experts(t, e);
        note(Collective::kAllToAll, step, t, y, v, user, why);
        part.layout = step.layout;
        part.room = step.room;
        return y;
      }
      case Move::kNever:
        WEFT_BUG_IF(true, "emit: ", g_.node(v).op->name, " at ", g_.node(v).line.to_string(),
                    " cannot be placed so for ", user ? user->op->name : "the result",
                    user && user->backward ? " in backward: " : ": ", why);
    }
    return t;
  }

  // The expert_order node that sorts the rows of v.
  int32_t order_of(Value v) const {
    std::vector<int32_t> todo{v.node};
    std::set<int32_t> seen;
    while (!todo.empty()) {
      const int32_t id = todo.back();
      todo.pop_back();
      if (!seen.insert(id).second) continue;
      const Node& n = g_.node(id);
      if (n.op == &expert_order_op) return id;
      const bool moves = n.op->is(kExpertRows);
      for (size_t i = n.inputs.size(); i-- > 0;) {
        const Value in = n.inputs[i];
        if (moves && g_.node(in).op == &expert_order_op) return in.node;
        if (n.op == &grouped_dot_op && i == 2) return in.node;
        const Shape& shape = g_.type(in).shape;
        if (!moves && !shape.empty() && shape[0] == g_.type(v).shape[0]) todo.push_back(in.node);
      }
    }
    WEFT_BUG_IF(true, "emit: no expert_order node behind ", g_.node(v).op->name);
  }

  const ExpertExchange& exchange(int32_t order, const Axes& axes) {
    const auto key = std::make_pair(order, mesh_.name(axes));
    if (auto it = exchanges_.find(key); it != exchanges_.end()) return it->second;
    const Node& n = g_.node(order);
    ExpertOrder local;
    Tensor* const parts[] = {&local.slots, &local.tokens, &local.rows, &local.counts, &local.offsets};
    for (int32_t i = 0; i < 5; ++i) *parts[i] = versions({order, i}).front().local;
    local.top_k = g_.type(n.inputs[0]).shape[1];
    const Seg experts{n.attrs.i("num_experts"), axes};
    ExpertParallel o{
        .axes = key.second, .ranks = mesh_.parts(axes), .num_experts = experts.extent, .factor = pins_.expert_room};
    for (int peer : mesh_.group(rank_, axes)) o.owned.push_back(local_extent(mesh_, experts, peer));
    o.own = local_extent(mesh_, experts, rank_);
    const OriginScope at(n, n.backward);
    return exchanges_[key] = exchange_order(local, o);
  }

  // Slices this rank's part: t has the part `before`, and the result has the part `after`.
  Tensor slice_of(const Tensor& t, int dim, const SpecPart& before, const SpecPart& after) {
    const Tensor zero = constant(int64_t{0}, kInt64);
    auto block = [&](const Tensor& start, int64_t extent) {
      std::vector<Tensor> starts(static_cast<size_t>(t.dim()), zero);
      starts[dim] = start;
      Shape sizes = t.shape();
      sizes[dim] = extent;
      return dynamic_slice(t, starts, sizes);
    };
    const Seg now{after.extent, after.axes, after.layout};
    if (after.layout == SegLayout::kHeadTail) {
      const int64_t n = mesh_.parts(after.axes);
      WEFT_CHECK(after.extent % (2 * n) == 0, "a dim of ", after.extent, " does not divide into ", 2 * n,
                 " chunks, head to tail");
      const int64_t chunk = after.extent / (2 * n);
      const Tensor i = coordinate(after.axes);
      return cat({block(i * chunk, chunk), block((2 * n - 1 - i) * chunk, chunk)}, dim);
    }
    if (after.layout == SegLayout::kTable) return index_select(t, dim, own_positions(after.axes));
    Tensor start = block_begin(*this, now);
    if (!before.axes.empty()) start = start - block_begin(*this, Seg{before.extent, before.axes, before.layout});
    return block(start, local_extent(mesh_, now, rank_));
  }

  // t has the positions of rank 0, then of rank 1, ...; the result has them in ascending order.
  Tensor in_order(const Tensor& t, int dim, const SpecPart& part) {
    if (part.layout == SegLayout::kTable) return index_select(t, dim, positions().places);
    if (part.layout != SegLayout::kHeadTail) return t;
    const int64_t n = mesh_.parts(part.axes);
    std::vector<int64_t> at;
    for (int64_t c = 0; c < 2 * n; ++c) at.push_back(c < n ? 2 * c : 2 * (2 * n - 1 - c) + 1);
    return chunks(t, dim, part.extent / (2 * n), at);
  }

  // The inverse of in_order().
  Tensor by_rank(const Tensor& t, int dim, const SpecPart& part) {
    if (part.layout == SegLayout::kTable) return index_select(t, dim, positions().positions);
    if (part.layout != SegLayout::kHeadTail) return t;
    const int64_t n = mesh_.parts(part.axes);
    std::vector<int64_t> at;
    for (int64_t i = 0; i < n; ++i) at.insert(at.end(), {i, 2 * n - 1 - i});
    return chunks(t, dim, part.extent / (2 * n), at);
  }

  static Tensor chunks(const Tensor& t, int dim, int64_t size, const std::vector<int64_t>& at) {
    std::vector<Tensor> out;
    for (int64_t c : at) out.push_back(slice(t, dim, c * size, (c + 1) * size));
    return cat(out, dim);
  }

  const Mesh& mesh_;
  const Graph& g_;
  const Decision& d_;
  const Pins& pins_;
  const int rank_;
  Capture capture_;
  std::vector<std::vector<std::vector<LocalVersion>>> versions_;
  std::map<std::string, Tensor> coordinates_;
  std::map<int32_t, std::vector<Tensor>> whole_;  // results of nodes that every rank computes as a whole
  PositionTable positions_;
  std::map<std::pair<int32_t, std::string>, ExpertExchange> exchanges_;
  std::vector<PlannedCollective> collectives_;
  int64_t sites_ = 0;                   // the last assigned site
  std::vector<bool> follows_gradient_;  // node -> it is a gradient, or is made from one
  int32_t written_ = -1;                // the cell whose new value is being resharded to its placement at rest
};

}  // namespace

std::vector<bool> follows_gradients(const Graph& g) {
  std::vector<bool> all, constant;
  for (int32_t id = 0; id < g.size(); ++id) {
    const Node& n = g.node(id);
    bool follows = n.backward, fixed = !is_leaf(n);
    for (Value v : n.inputs) {
      follows = follows || all[v.node];
      fixed = fixed && constant[v.node];
    }
    constant.push_back(fixed);
    all.push_back(follows && !fixed);
  }
  return all;
}

std::vector<Axes> uneven_axes(const Mesh& mesh, const Decision& d) {
  std::vector<Axes> uneven;
  auto look = [&](const Spec& spec) {
    for (const DimSpec& dim : spec.dims)
      for (const Seg& s : dim)
        if (!s.axes.empty() && !s.is_rows() && s.extent % s.pieces(mesh.parts(s.axes)) != 0 &&
            std::find(uneven.begin(), uneven.end(), s.axes) == uneven.end())
          uneven.push_back(s.axes);
  };
  for (const NodeChoice& c : d.nodes) {
    for (const Spec& s : c.in) look(s);
    for (const Spec& s : c.out) look(s);
    for (const Spec& s : c.settled) look(s);
  }
  for (const CellPin& c : d.cells) look(c.rest);
  return uneven;
}

LocalGraph emit(const Mesh& mesh, const Graph& g, const Decision& d, const Pins& pins, int rank) {
  return Emitter(mesh, g, d, pins, rank).run();
}

}  // namespace weft::dist
