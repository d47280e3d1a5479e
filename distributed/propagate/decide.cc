#include "distributed/propagate/decide.h"

#include <algorithm>
#include <map>
#include <unordered_map>

#include "compiler/cost/machine/machine.h"
#include "distributed/placement/replica.h"
#include "distributed/propagate/roles.h"
#include "distributed/propagate/update_specs.h"
#include "framework/autodiff/grad.h"
#include "ops/core/core.h"
#include "ops/core/indexing/moe.h"

namespace weft::dist {
namespace {

constexpr double kForbidden = 1e30;

struct ValueState {
  Spec base, anchor;       // as computed; as consumers should assume it
  bool parameter = false;  // a cell, or made from one cell alone: its splits at use are not undone
  bool again = true;       // CellPin::gather_again
  std::vector<Version> versions;
};

// The tokens of expert_order nodes, by node, where their operands do not give the placement.
using Orders = std::map<int32_t, DimSpec>;

class Decider {
 public:
  Decider(const Mesh& mesh, const Graph& g, const Pins& pins, Orders orders)
      : mesh_(mesh), g_(g), pins_(pins), orders_(std::move(orders)) {}

  // `orders`, and the orders of this run that need another placement.
  const Orders& orders() const { return orders_; }

  Decision run() {
    out_.nodes.resize(static_cast<size_t>(g_.size()));
    out_.prefer.resize(static_cast<size_t>(g_.size()));
    states_.resize(static_cast<size_t>(g_.size()));
    WEFT_BUG_IF(pins_.cells.size() != g_.cells.size() || pins_.inputs.size() != g_.inputs.size(), "decide: pins for ",
                pins_.cells.size(), " cells and ", pins_.inputs.size(), " arguments");
    for (int32_t id = 0; id < g_.size(); ++id) states_[id].resize(g_.node(id).outputs.size());
    if (pins_.sequence) roles_ = find_roles(g_);
    updates_ = find_update_specs(mesh_, g_, pins_);
    sums_ = find_sums(g_, pins_, updates_);
    readers_ = find_readers(g_);
    for (int32_t id = 0; id < g_.size(); ++id)
      if (is_cell(g_.node(id))) node_of_cell_[g_.node(id).attrs.i("index")] = id;
    for (int32_t id = 0; id < g_.size(); ++id) {
      const bool gradient = g_.node(id).backward && !g_.node(id).outputs.empty() && update({id, 0});
      out_.gradient_of.push_back(gradient ? update({id, 0})->cell : -1);
    }
    for (size_t c = 0; c < g_.cells.size(); ++c) out_.cells.push_back(pin_of(c));
    for (int32_t id = 0; id < g_.size(); ++id) decide(id);
    for (Value v : g_.outputs) {
      Spec s = free(v) || lazy(v) ? Spec::replicated(g_.type(v).shape) : state(v).base;
      s.pending = {};
      for (DimSpec& dim : s.dims)
        for (Seg& seg : dim)
          if (seg.layout == SegLayout::kTable)
            seg.layout = SegLayout::kBlock;  // the caller does not know the positions
      out_.outputs.push_back(s);
    }
    return std::move(out_);
  }

 private:
  ValueState& state(Value v) { return states_[v.node][v.index]; }
  std::optional<UpdateSpec>& update(Value v) { return updates_[v.node][v.index]; }
  const Readers& readers(Value v) const { return readers_[v.node][v.index]; }
  int64_t numel(Value v) const { return g_.type(v).shape.numel(); }
  bool free(Value v) const { return out_.nodes[v.node].free && !lazy(v); }
  // A broadcast of a value that is not free: made on demand too, but its operand may have to move. Terms are added
  // before they are broadcast, so that ranks send each number once.
  bool lazy(Value v) const {
    const NodeChoice& c = out_.nodes[v.node];
    return c.free && is_broadcast(g_.node(v)) && !out_.nodes[g_.node(v).inputs[0].node].free;
  }
  // The placement that the operand of a lazy value needs so that the value gets placement `want`.
  Spec behind(Value v, const Spec& want) const {
    const Node& n = g_.node(v);
    const Rule rule = rule_of(g_, n);
    const FactorSplit split = split_of(mesh_, rule, rule.map.out[0], want);
    Spec plain = want;
    plain.pending = {};
    if (result_spec(mesh_, rule, 0, split) == plain) return operand_spec(mesh_, rule, 0, split);
    return Spec::replicated(g_.type(n.inputs[0]).shape);
  }

  CellPin pin_of(size_t c) {
    if (pins_.cells[c]) return *pins_.cells[c];
    const Spec whole = Spec::replicated(g_.cells[c]->type.shape);
    CellPin pin{.rest = whole, .use = whole, .update = whole, .why = "replicated"};
    const auto node = node_of_cell_.find(static_cast<int64_t>(c));
    if (node == node_of_cell_.end()) return pin;
    if (const auto& u = update({node->second, 0})) {  // optimiser state has the placement of the update
      pin.rest = pin.use = pin.update = u->spec;
      pin.why = "as the update that it is part of";
    }
    return pin;
  }

  // ---- free values: every rank can make its part without communication ----

  bool is_free(const Node& n) {
    if (is_unwritten_leaf(n) || n.op->is(kFromAttrs)) return true;
    // Random bits at one place: operand 2 of random_bits_at, if it is a number.
    const bool random = n.op->is(kRandom) && (n.inputs.size() < 3 || g_.type(n.inputs[2]).shape.empty());
    const bool view = n.op->placing != Placing::kNone && n.op->placing != Placing::kWindow;
    const bool plain = n.op->is(kPointwise) || random || view || n.op->is(kAssembles);
    if (!plain) return false;
    bool any = random;
    for (Value v : n.inputs) {
      if (free(v)) {
        any = true;
        continue;
      }
      if (!g_.type(v).shape.empty() || !state(v).base.pending.empty()) return false;
    }
    return any;
  }

  Spec preferred(int32_t id) {
    const Node& n = g_.node(id);
    const TensorType& t = n.outputs[0];
    if (is_argument(n)) return pins_.inputs[n.attrs.i("index")];
    Spec best = Spec::replicated(t.shape);
    if (n.inputs.empty()) return best;
    if (n.op->placing == Placing::kSlice) {  // part of a split dim is split the same way
      Spec s = out_.prefer[n.inputs[0].node];
      for (int d = 0; d < t.shape.size(); ++d) {
        DimSpec& dim = s.dims[d];
        if (whole(dim) || t.shape[d] == g_.type(n.inputs[0]).shape[d]) {
          if (whole(dim)) dim = one_segment(t.shape[d]);
          continue;
        }
        const Axes axes = axes_of(dim);
        const bool fits = dim.size() == 1 && dim[0].layout == SegLayout::kBlock && t.shape[d] % mesh_.parts(axes) == 0;
        if (!fits && t.shape[d] > 1)
          out_.notes.push_back(str_cat("slice at ", n.line.to_string(), ": ", t.shape[d], " of dim ", d,
                                       " do not divide over ", mesh_.name(axes), " (", mesh_.parts(axes),
                                       "): computed as a whole on every rank of it"));
        dim = fits ? one_segment(t.shape[d], axes) : one_segment(t.shape[d]);
      }
      return s;
    }
    const Rule rule = rule_of(g_, n);
    FactorSplit split = whole(rule);
    for (size_t i = 0; i < n.inputs.size(); ++i) {
      if (!free(n.inputs[i])) continue;
      const Spec& p = out_.prefer[n.inputs[i].node];
      merge(mesh_, split_of(mesh_, rule, rule.map.in[i], p), split);
    }
    return result_spec(mesh_, rule, 0, split);
  }

  Spec preferred_of_broadcast(const Node& n) {
    const Rule rule = rule_of(g_, n);
    return result_spec(mesh_, rule, 0, split_of(mesh_, rule, rule.map.in[0], state(n.inputs[0]).anchor));
  }

  // ---- one node ----

  void decide(int32_t id) {
    const Node& n = g_.node(id);
    NodeChoice& c = out_.nodes[id];
    if (is_cell(n)) {
      const CellPin& pin = out_.cells[n.attrs.i("index")];
      c.out.push_back(pin.rest);
      c.settled.push_back(pin.rest);
      state({id, 0}) = {pin.rest, pin.use, true, pin.gather_again, {{pin.rest}}};
      return;
    }
    if (const bool broadcast = is_broadcast(n) && !free(n.inputs[0]); broadcast || is_free(n)) {
      c.free = true;
      const Spec p = broadcast ? preferred_of_broadcast(n) : preferred(id);
      out_.prefer[id] = p;
      for (size_t i = 0; i < n.outputs.size(); ++i) state({id, static_cast<int32_t>(i)}) = {p, p, false, true, {{p}}};
      return;
    }
    const Rule rule = rule_of(g_, n);
    if (made_of_parameter(id, rule, c)) return;
    const uint32_t passing = passes_pending(id, rule);
    const std::vector<FactorSplit> candidates = candidates_of(id, rule, passing);
    double best = 0;
    size_t chosen = 0;
    for (size_t k = 0; k < candidates.size(); ++k) {
      const double cost = cost_of_split(id, rule, candidates[k], passing);
      if (k == 0 || cost < best) best = cost, chosen = k;
    }
    FactorSplit split = candidates[chosen];
    if (best >= kForbidden)
      out_.notes.push_back(
          str_cat(n.op->name, " at ", n.line.to_string(), *n.scope ? str_cat(" in ", n.scope) : "",
                  ": a weight that is split over model dimensions is gathered there; no split of this op keeps it"));
    for (size_t l = 0; l < pins_.lowerings.size() && !c.lowering; ++l) {
      SplitNode at{mesh_, n, rule, std::move(split)};
      std::string note;
      if (pins_.lowerings[l]->claim(at, note)) c.lowering = pins_.lowerings[l].get();
      split = std::move(at.split);
      if (!note.empty()) note_once(note);
    }
    choose(id, rule, split, c.lowering ? 0 : passing);
  }

  void note_once(const std::string& text) {
    if (std::find(out_.notes.begin(), out_.notes.end(), text) == out_.notes.end()) out_.notes.push_back(text);
  }

  // Values made from one parameter alone (a cast, a transposed view) are computed on its shards.
  bool made_of_parameter(int32_t id, const Rule& rule, NodeChoice& c) {
    const Node& n = g_.node(id);
    if (n.inputs.size() != 1 || n.outputs.size() != 1 || (!n.op->is(kPointwise) && !is_rearranged(n))) return false;
    const ValueState from = state(n.inputs[0]);
    if (!from.parameter || update({id, 0})) return false;
    const FactorSplit at_rest = split_of(mesh_, rule, rule.map.in[0], from.base),
                      at_use = split_of(mesh_, rule, rule.map.in[0], from.anchor);
    if (!(operand_spec(mesh_, rule, 0, at_rest) == from.base) || !(operand_spec(mesh_, rule, 0, at_use) == from.anchor))
      return false;
    const Spec base = result_spec(mesh_, rule, 0, at_rest);
    c.split = at_rest;
    c.in.push_back(from.base);
    c.out.push_back(base);
    c.settled.push_back(base);
    state({id, 0}) = {base, result_spec(mesh_, rule, 0, at_use), true, from.again, {{base}}};
    return true;
  }

  // Bit i: the pending sums of operand i stay pending in the result.
  uint32_t passes_pending(int32_t id, const Rule& rule) {
    const Node& n = g_.node(id);
    if (!n.op->linear || !rule.map.linear) return 0;
    const size_t count = std::min<size_t>(n.inputs.size(), 32);
    uint32_t can = 0;
    size_t pending = 0;
    for (size_t i = 0; i < count; ++i) {
      if (free(n.inputs[i]) || current(n, i).pending.empty()) continue;
      ++pending;
      if (takes_terms(g_, n, i)) can |= 1u << i;
    }
    // A narrow wire rounds gradients only, not the values that the update computes from them.
    if (pins_.wire != kFloat32 && !n.backward && pending < n.inputs.size())
      for (size_t i = 0; i < count; ++i)
        if (out_.gradient_of[n.inputs[i].node] >= 0) can &= ~(1u << i);
    const int64_t results = n.outputs[0].shape.numel();
    int64_t terms = 0;
    for (size_t i = 0; i < count; ++i) {
      if (!(can >> i & 1)) continue;
      // If another reader needs the sum, this node reads the sum as well.
      const Readers& all = readers(n.inputs[i]);
      if (all.together || (all.need_sum && numel(n.inputs[i]) <= results)) can &= ~(1u << i);
      if (can >> i & 1) terms += numel(n.inputs[i]);
      for (const Pending& p : current(n, i).pending)
        if (p.op != ReduceOp::kSum && p.op != ReduceOp::kAvg) return 0;
    }
    // Terms are added where they are fewest. The gradient of a parameter is reduced in the parameter's shape.
    if (!can || (results > terms + kFewNumbers && !update({id, 0}))) return 0;
    if (n.op->jointly) {
      // The other operands become terms of the sum, too: coordinate 0 keeps their values ...
      for (size_t i = 0; i < count; ++i) {
        if (!(n.op->linear >> i & 1) || can >> i & 1 || free(n.inputs[i])) continue;
        if (numel(n.inputs[i]) > kFewNumbers) return 0;
        // ... which needs them whole.
        for (size_t k = 0; k < count; ++k)
          if (can >> k & 1 && splits_terms(n, i, k)) return 0;
      }
      return can;
    }
    // Linear in each operand by itself: only the largest one stays pending.
    size_t best = count;
    for (size_t i = 0; i < count; ++i)
      if (can >> i & 1 && (best == count || numel(n.inputs[i]) > numel(n.inputs[best]))) best = i;
    // Operands that are split over its axes must be whole beside its terms. The sum comes first if these operands
    // and the terms of the result have more elements than the terms.
    int64_t moved = 0;
    for (size_t i = 0; i < count; ++i)
      if (const Value v = n.inputs[i]; n.op->is(kPointwise) && i != best && !free(v) && splits_terms(n, i, best))
        moved += numel(lazy(v) ? g_.node(v).inputs[0] : v);
    const int32_t next = readers({id, 0}).need_sum ? -1 : readers({id, 0}).only;
    const int64_t after = next < 0 ? results : std::min(results, numel({next, 0}));
    return moved > 0 && moved + after > numel(n.inputs[best]) ? 0 : 1u << best;
  }

  // Whether operand i is split over an axis over which operand k is pending.
  bool splits_terms(const Node& n, size_t i, size_t k) {
    const Spec other = current(n, i), terms = current(n, k);
    return std::ranges::any_of(terms.pending, [&](const Pending& p) { return other.splits(p.axis); });
  }

  // Whether these terms of a gradient are added to terms that are reduced anyway.
  bool joins_terms(Value v, const Spec& gradient) {
    const int32_t sum = readers(v).only;
    if (sum < 0 || !update(v) || !adds_gradients(g_.node(sum))) return false;
    return std::ranges::any_of(g_.node(sum).inputs, [&](Value other) {
      const auto reduced = [&](const Pending& p) { return state(other).base.pending.contains(p); };
      return other.node < v.node && !free(other) && std::ranges::all_of(gradient.pending, reduced);
    });
  }

  bool visible(const Version& v, const ValueState& s, const Node& n) const {
    return !v.gathered || v.backward == n.backward || (s.parameter ? !s.again : pins_.keep_gathered);
  }

  // The placement of operand i for consumers: of its reduced version if there is one, otherwise of its terms.
  Spec current(const Node& n, size_t i) {
    ValueState& s = state(n.inputs[i]);
    if (s.base.pending.empty()) return s.anchor;
    const Version* best = nullptr;
    for (const Version& v : s.versions)
      if (v.spec.pending.size() < (best ? best->spec.pending : s.base.pending).size() && visible(v, s, n)) best = &v;
    return best ? best->spec : s.base;
  }

  // The placement that operand i would choose by itself.
  Spec anchor(const Node& n, size_t i, uint32_t passing) {
    Spec s = current(n, i);
    if (s.pending.empty() || passing >> i & 1) return s;
    if (const auto& u = update(n.inputs[i])) return u->spec;
    return s;
  }

  std::vector<FactorSplit> candidates_of(int32_t id, const Rule& rule, uint32_t passing) {
    const Node& n = g_.node(id);
    if (const auto tokens = orders_.find(id); tokens != orders_.end()) {
      FactorSplit s = whole(rule);
      s[rule.tokens] = tokens->second;
      WEFT_BUG_IF(!complete(mesh_, rule, pins_.expert_room, s), "decide: rows of ", n.op->name, " do not divide");
      return {s};
    }
    std::vector<FactorSplit> own;
    std::vector<size_t> order;
    for (size_t i = 0; i < n.inputs.size(); ++i) {
      Spec s = anchor(n, i, passing);
      own.push_back(split_of(mesh_, rule, rule.map.in[i], s));
      order.push_back(i);
    }
    // Axes over which a passing operand is pending must not split a factor.
    Axes taken;
    for (size_t i = 0; i < n.inputs.size() && i < 32; ++i)
      if (passing >> i & 1)
        for (const Pending& p : current(n, i).pending) taken.push_back(p.axis);
    for (FactorSplit& s : own)
      for (DimSpec& d : s)
        for (int8_t a : axes_of(d))
          if (taken.contains(a)) d = one_segment(extent_of(d));
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return g_.type(n.inputs[a]).nbytes() > g_.type(n.inputs[b]).nbytes(); });
    std::vector<FactorSplit> out;
    auto add = [&](FactorSplit s) {
      for (size_t i : order) merge(mesh_, own[i], s);
      if (rule.tokens >= 0) split_tokens(rule, s);
      if (!complete(mesh_, rule, pins_.expert_room, s)) {
        // Rows that are not split over the axes of experts stay where they are and meet all experts.
        if (rule.experts < 0) return;
        s[rule.experts] = whole(rule)[rule.experts];
        if (!complete(mesh_, rule, pins_.expert_room, s)) return;
      }
      if (std::find(out.begin(), out.end(), s) == out.end()) out.push_back(std::move(s));
    };
    if (!n.outputs.empty() && passing == 0) {
      if (const auto& u = update({id, 0})) {
        const FactorSplit s = split_of(mesh_, rule, rule.map.out[0], u->spec);
        if (n.op->is(kPointwise) && result_spec(mesh_, rule, 0, s) == u->spec) return {s};
        // The gradient of a table adds rows that may be far fewer than the table's.
        if (n.op->is(kPointwise) || n.op->is(kIndexing)) add(s);
      }
    }
    for (size_t i : order)
      if (out.size() < 6) add(own[i]);
    if (out.empty()) out.push_back(whole(rule));
    return out;
  }

  // Rows that are sorted by expert cannot move to the ranks of other tokens. Choices that do not depend on the tokens,
  // such as constants, do not have their placement: note that their order needs it.
  void note_orders(const Node& n, const Rule& rule, const FactorSplit& split) {
    if (rule.tokens < 0) return;
    const DimSpec& tokens = split[rule.tokens];
    for (Value v : n.inputs) {
      const Node& order = g_.node(v);
      if (order.op != &expert_order_op) continue;
      const auto own = static_cast<size_t>(rule_of(g_, order).tokens);
      if (!(out_.nodes[v.node].split[own] == tokens)) orders_.emplace(v.node, tokens);
    }
  }

  // Tokens that are routed to experts are split over the axes of the experts, too: in the last segment that divides.
  // Nothing else is split over these axes then.
  void split_tokens(const Rule& rule, FactorSplit& split) const {
    DimSpec& tokens = split[rule.tokens];
    for (int8_t a : pins_.experts) {
      const Axes have = axes_of(tokens);
      if (have.contains(a)) continue;
      for (size_t k = tokens.size(); k-- > 0;) {
        Seg& s = tokens[k];
        if (s.layout != SegLayout::kBlock || s.extent % (mesh_.parts(s.axes) * mesh_.axis_size(a)) != 0) continue;
        s.axes.push_back(a);
        for (size_t f = 0; f < split.size(); ++f) {
          const Axes own = axes_of(split[f]);
          if (static_cast<int>(f) == rule.tokens || !own.contains(a)) continue;
          split[f] = one_segment(extent_of(split[f]));  // whole: the rest of a segment may not divide
        }
        break;
      }
    }
    tokens = canonical(mesh_, tokens);
  }

  static int64_t extent_of(const DimSpec& d) {
    int64_t e = 1;
    for (const Seg& s : d) e *= s.extent;
    return e;
  }

  // The placement that operand i needs for this split.
  Spec needed(const Node& n, const Rule& rule, size_t i, const FactorSplit& split, uint32_t passing) {
    if (n.op == &barrier_op && i > 0) {  // a barrier only waits for it
      const Value v = n.inputs[i];
      return free(v) || lazy(v) ? out_.prefer[v.node] : state(v).base;
    }
    Spec s = operand_spec(mesh_, rule, i, split);
    if (passing == 0) return s;
    auto add_all = [&](size_t of) {
      for (const Pending& p : current(n, of).pending)
        if (!s.is_pending(p.axis)) s.add_pending(p.axis, p.op);
    };
    if (passing >> i & 1) add_all(i);
    if (n.op->jointly && n.op->linear >> i & 1)
      for (size_t k = 0; k < n.inputs.size() && k < 32; ++k)
        if (passing >> k & 1) add_all(k);
    return s;
  }

  double move_cost(const Node& n, Value v, const Spec& to) {
    if (free(v)) return 0;
    if (lazy(v)) return move_cost(n, g_.node(v).inputs[0], behind(v, to));
    ValueState& s = state(v);
    if (s.parameter)
      for (int8_t a : s.anchor.split_axes())
        if (!to.splits(a)) return kForbidden;
    return from(n, v, to).bytes;
  }

  // The version of a value from which node n gets a placement.
  Source<Version> from(const Node& n, Value v, const Spec& to) {
    const ValueState& s = state(v);
    return cheapest(mesh_, s.versions, to, g_.type(v).dtype, [&](const Version& x) { return visible(x, s, n); });
  }

  double cost_of_split(int32_t id, const Rule& rule, const FactorSplit& split, uint32_t passing) {
    const Node& n = g_.node(id);
    double cost = 0;
    for (size_t i = 0; i < n.inputs.size(); ++i) cost += move_cost(n, n.inputs[i], needed(n, rule, i, split, passing));
    int64_t ranks = 1;
    for (const DimSpec& d : split) ranks *= mesh_.parts(axes_of(d));
    if (n.op->is(kContraction) || n.op->decompose)
      cost += op_cost(g_, n).flops / static_cast<double>(ranks) / flops_per_byte_;
    for (size_t i = 0; i < n.outputs.size(); ++i) {
      const Spec r = result_spec(mesh_, rule, i, split);
      if (r.pending.empty() || joins_terms({id, static_cast<int32_t>(i)}, r)) continue;
      const auto& u = update({id, static_cast<int32_t>(i)});
      const Spec to = u ? u->spec : settled({id, static_cast<int32_t>(i)}, r, n);
      cost += cost_of(mesh_, reshard(mesh_, r, to), n.outputs[i].dtype).bytes;
    }
    return cost;
  }

  // The placement of a new result after the reductions that come at once.
  Spec settled(Value v, const Spec& computed, const Node& n) {
    if (computed.pending.empty()) return computed;
    if (const auto& u = update(v)) {
      if (!u->each || u->dtype != g_.type(v).dtype) return computed;
      Spec s = u->spec;  // replicas sum once, not for each microbatch
      for (const Pending& p : computed.pending)
        if (p.axis == replica_axis(mesh_)) s.add_pending(p.axis, p.op);
      return s;
    }
    if (sums_.added_up[v.node]) return computed;
    const bool activation =
        ((n.op->is(kContraction) || n.op->is(kIndexing)) && is_floating(g_.type(v).dtype)) || sums_.adds_up[v.node];
    if (!activation) return computed;
    Spec s = computed;
    s.pending = {};
    Axes reduced;
    for (const Pending& p : computed.pending) {
      if (p.op == ReduceOp::kSum && pins_.activations.contains(p.axis)) {
        reduced.push_back(p.axis);
      } else {
        s.pending.push_back(p);
      }
    }
    if (!reduced.empty() && pins_.sequence) split_sequence(v, reduced, s);
    return s;
  }

  void split_sequence(Value v, const Axes& axes, Spec& s) {
    const ValueRoles& roles = roles_[v.node];
    for (size_t d = 0; d < roles.size() && d < s.dims.size(); ++d) {
      std::vector<int64_t> sizes;
      int which = -1;
      for (const RoleSeg& r : roles[d]) {
        if (r.role == 't') which = static_cast<int>(sizes.size());
        sizes.push_back(r.extent);
      }
      if (which < 0) continue;
      auto parts = cut(mesh_, s.dims[d], sizes);
      if (!parts) return;
      DimSpec& part = (*parts)[which];
      if (part.size() != 1 || part[0].layout != SegLayout::kBlock) return;
      Seg& seg = part[0];
      if (seg.extent % (mesh_.parts(seg.axes) * mesh_.parts(axes)) != 0) {
        note_once(str_cat("sequence parallelism: a sequence of ", seg.extent, " does not divide over ",
                          mesh_.parts(seg.axes) * mesh_.parts(axes), " ranks (", mesh_.name(axes), "); sums over ",
                          mesh_.name(axes), " are reduced to all of them"));
        return;
      }
      for (int8_t a : axes) seg.axes.push_back(a);
      s.dims[d] = join(mesh_, *parts);
      return;
    }
  }

  void choose(int32_t id, const Rule& rule, const FactorSplit& split, uint32_t passing) {
    const Node& n = g_.node(id);
    NodeChoice& c = out_.nodes[id];
    c.split = split;
    note_orders(n, rule, split);
    const SplitNode at{mesh_, n, rule, split};
    SmallVec<Pending, 2> kept;
    for (size_t i = 0; i < n.inputs.size(); ++i) {
      Spec need = needed(n, rule, i, split, passing);
      if (c.lowering) c.lowering->place_operand(at, i, need);
      if (passing >> i & 1)
        for (const Pending& p : need.pending)
          if (!kept.contains(p)) kept.push_back(p);
      c.in.push_back(need);
      obtain(n, n.inputs[i], need);
    }
    for (size_t i = 0; i < n.outputs.size(); ++i) {
      const Value v{id, static_cast<int32_t>(i)};
      Spec computed = result_spec(mesh_, rule, i, split);
      for (const Pending& p : kept)
        if (!computed.is_pending(p.axis)) computed.add_pending(p.axis, p.op);
      if (c.lowering) c.lowering->place_result(at, i, computed);
      const Spec s = settled(v, computed, n);
      c.out.push_back(computed);
      c.settled.push_back(s);
      state(v) = {s, s, false, true, {{s}}};
    }
  }

  void obtain(const Node& n, Value v, const Spec& need) {
    if (free(v)) return;
    if (lazy(v)) return obtain(n, g_.node(v).inputs[0], behind(v, need));
    const Source<Version> source = from(n, v, need);
    WEFT_BUG_IF(!source.version, "decide: no version of an operand of ", n.op->name);
    if (source.version->spec == need) return;
    state(v).versions.push_back({need, is_gather(source.stages) || source.version->gathered, n.backward});
  }

  // The operations that take as long as a byte on a link of a current accelerator.
  const double flops_per_byte_ = [] {
    const Machine& m = planned_machine(DeviceType::kCuda);
    return m.products16 * m.reached / m.links.inner_bus;
  }();
  const Mesh& mesh_;
  const Graph& g_;
  const Pins& pins_;
  Orders orders_;
  Decision out_;
  std::vector<std::vector<ValueState>> states_;
  UpdateSpecs updates_;
  Sums sums_;
  std::vector<std::vector<Readers>> readers_;
  std::unordered_map<int64_t, int32_t> node_of_cell_;
  std::vector<ValueRoles> roles_;
};

}  // namespace

bool is_gather(const std::vector<ReshardStage>& stages) {
  for (const ReshardStage& s : stages)
    for (const ReshardStep& step : s.steps)
      if (step.move == Move::kAllGather) return true;
  return false;
}

Decision decide(const Mesh& mesh, const Graph& g, const Pins& pins) {
  for (Orders orders;;) {
    Decider decider(mesh, g, pins, orders);
    Decision d = decider.run();
    if (decider.orders().size() == orders.size()) return d;
    orders = decider.orders();
  }
}

}  // namespace weft::dist
