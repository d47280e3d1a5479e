// Tensor parallelism (tp; Shoeybi et al. 2019), derived from the graph alone. A weight whose input is whole is split by
// columns if the result can stay split until the next weight. That weight is split by rows: one reduction for the pair.
#include <algorithm>
#include <deque>

#include "distributed/strategies/strategy.h"
#include "framework/ir/rewrite.h"
#include "ops/core/core.h"

namespace weft::dist {
namespace {

class TensorParallel {
 public:
  TensorParallel(StrategyContext& s, const Axes& tp) : s_(s), tp_(tp), users_(users(s.graph)) {
    specs_.resize(static_cast<size_t>(s.graph.size()));
  }

  void run() {
    const Graph& g = s_.graph;
    for (int32_t id = 0; id < g.size(); ++id) {
      const Node& n = g.node(id);
      for (const TensorType& t : n.outputs) specs_[id].push_back(Spec::replicated(t.shape));
      if (n.backward || n.inputs.empty()) continue;
      const Rule rule = rule_of(g, n);
      FactorSplit split = whole(rule);
      for (size_t i = 0; i < n.inputs.size(); ++i)
        if (parameter(n.inputs[i]) == nullptr)
          merge(s_.mesh, split_of(s_.mesh, rule, rule.map.in[i], spec(n.inputs[i])), split);
      for (size_t i = 0; i < n.inputs.size(); ++i) weight(n, id, rule, i, split);
      for (size_t i = 0; i < n.outputs.size(); ++i) {
        Spec r = result_spec(s_.mesh, rule, i, split);
        r.pending = {};
        specs_[id][i] = r;
      }
    }
  }

 private:
  const Spec& spec(Value v) const { return specs_[v.node][v.index]; }
  ParameterPin* parameter(Value v) {
    const int32_t cell = parameter_behind(s_.graph, v);
    return cell < 0 ? nullptr : s_.find(cell);
  }

  // If operand i of node n is made from a parameter, applies the parameter's pin, or finds one.
  void weight(const Node& n, int32_t id, const Rule& rule, size_t i, FactorSplit& split) {
    ParameterPin* p = parameter(n.inputs[i]);
    if (!p) return;
    const bool product = n.op->is(kContraction), lookup = n.op == &index_select_op && i == 0;
    if (!p->split_by_rule && !p->uses(tp_)) {
      if (n.op == &grouped_dot_op && s_.plan.sequence) {
        // Tokens are split over tp already.
      } else if (product) {
        find_split(n, id, rule, i, split, *p);
      } else if (lookup && n.attrs.i("dim") == 0 && p->shape.size() == 2 && p->shape[0] >= s_.mesh.parts(tp_)) {
        pin(n.inputs[i], *p, 0, tp_, "tp: rows of the table");
      } else if (!lookup) {
        // A parameter that meets a split value elementwise (a bias) is split like it.
        const Spec need = operand_spec(s_.mesh, rule, i, split);
        for (size_t d = 0; d < need.dims.size(); ++d)
          if (!whole(need.dims[d]))
            pin(n.inputs[i], *p, d, axes_of(need.dims[d]), "tp: as the values that it is combined with");
      }
    }
    merge(s_.mesh, split_of(s_.mesh, rule, rule.map.in[i], behind(n.inputs[i], *p)), split);
  }

  void find_split(const Node& n, int32_t id, const Rule& rule, size_t i, FactorSplit& split, ParameterPin& p) {
    // Splits by rows: the other operand is split over a summed factor.
    for (size_t d = 0; d < rule.map.in[i].size(); ++d) {
      if (rule.map.in[i][d].size() != 1) continue;
      const auto f = static_cast<size_t>(rule.map.in[i][d][0]);
      if (rule.map.factors[f].kind != FactorKind::kSum || whole(split[f])) continue;
      pin(n.inputs[i], p, d, axes_of(split[f]), "tp: rows");
      return;
    }
    for (const DimSpec& d : split)
      for (int8_t a : axes_of(d))
        if (tp_.contains(a)) return;  // already split in another way
    // Splits by columns: a factor of the result that only this operand has.
    for (size_t d = 0; d < rule.map.in[i].size(); ++d) {
      if (rule.map.in[i][d].size() != 1) continue;
      const int f = rule.map.in[i][d][0];
      const Factor& factor = rule.map.factors[f];
      if (factor.kind != FactorKind::kPass) continue;
      bool shared = false;
      for (size_t k = 0; k < rule.map.in.size(); ++k)
        for (const auto& dim : rule.map.in[k]) shared |= k != i && std::find(dim.begin(), dim.end(), f) != dim.end();
      if (shared) continue;
      if (factor.size < s_.mesh.parts(tp_)) {
        s_.notes.push_back(str_cat("tp: '", p.name, "' ", p.shape.to_string(),
                                   " is whole on every rank of tp: a dim of ", factor.size, " has less than ",
                                   s_.mesh.parts(tp_), " parts"));
        return;
      }
      // Splits over all of tp, or over the leading axes that later nodes allow (if there are fewer key heads than
      // ranks).
      for (Axes axes = tp_; !axes.empty(); axes.pop_back()) {
        FactorSplit columns = split;
        columns[f] = one_segment(factor.size, axes);
        if (!stays_split(id, result_spec(s_.mesh, rule, 0, columns))) continue;
        pin(n.inputs[i], p, d, axes, "tp: columns");
        if (axes.size() < tp_.size())
          s_.notes.push_back(
              str_cat("tp: '", p.name, "' is split over ", s_.mesh.parts(axes), " of ", s_.mesh.parts(tp_),
                      " ranks only: its result (heads) has no more parts; the other ranks compute the same"));
        return;
      }
    }
    if (p.shape.size() >= 2 && p.shape.numel() >= (int64_t{1} << 16))
      s_.notes.push_back(str_cat("tp: '", p.name, "' ", p.shape.to_string(),
                                 " is whole on every rank of tp: no split of its result lasts until the next weight"));
  }

  // Whether a result can stay split until a weight sums over it, or until it is reduced at the end.
  bool stays_split(int32_t id, const Spec& from) {
    std::deque<std::pair<Value, Spec>> todo{{{id, 0}, from}};
    std::vector<std::pair<Value, Spec>> seen;
    bool reduced = false, rows = false;
    while (!todo.empty()) {
      const auto [v, spec] = todo.front();
      todo.pop_front();
      for (int32_t user : users_[v.node]) {
        const Node& n = s_.graph.node(user);
        if (n.backward) continue;
        const Rule rule = rule_of(s_.graph, n);
        for (size_t i = 0; i < n.inputs.size(); ++i) {
          if (!(n.inputs[i] == v)) continue;
          const FactorSplit split = split_of(s_.mesh, rule, rule.map.in[i], spec);
          if (!(operand_spec(s_.mesh, rule, i, split) == spec)) return false;
          for (size_t o = 0; o < n.outputs.size(); ++o) {
            const Spec r = result_spec(s_.mesh, rule, o, split);
            if (r.pending.empty()) {
              const std::pair<Value, Spec> next{{user, static_cast<int32_t>(o)}, r};
              if (std::find(seen.begin(), seen.end(), next) != seen.end()) continue;
              seen.push_back(next);
              todo.push_back(next);
              if (seen.size() > 4000) return false;
              continue;
            }
            bool weight = false;
            for (Value w : n.inputs) weight |= parameter(w) != nullptr;
            if (n.op->is(kContraction)) {
              if (!weight) return false;
              rows = true;
            } else {
              reduced = true;
            }
          }
        }
      }
    }
    return !(reduced && rows);
  }

  // The spec of value v, which is made from parameter p.
  Spec behind(Value v, const ParameterPin& p) {
    const Node& n = s_.graph.node(v);
    if (is_cell(n)) {
      Spec s = Spec::replicated(p.shape);
      for (size_t d = 0; d < s.dims.size(); ++d) {
        Axes own;
        for (int8_t a : p.split[d])
          if (tp_.contains(a)) own.push_back(a);
        s.dims[d] = one_segment(p.shape[static_cast<int>(d)], own);
      }
      return s;
    }
    const Rule rule = rule_of(s_.graph, n);
    return result_spec(s_.mesh, rule, 0, split_of(s_.mesh, rule, rule.map.in[0], behind(n.inputs[0], p)));
  }

  // Splits the dim of the parameter that becomes dim d of v.
  void pin(Value v, ParameterPin& p, size_t d, const Axes& axes, const char* why) {
    Spec want = Spec::replicated(s_.graph.type(v).shape);
    want.dims[d] = one_segment(s_.graph.type(v).shape[static_cast<int>(d)], axes);
    while (!is_cell(s_.graph.node(v))) {
      const Node& n = s_.graph.node(v);
      const Rule rule = rule_of(s_.graph, n);
      want = operand_spec(s_.mesh, rule, 0, split_of(s_.mesh, rule, rule.map.out[0], want));
      v = n.inputs[0];
    }
    for (size_t k = 0; k < want.dims.size(); ++k) {
      if (whole(want.dims[k]) || want.dims[k].size() != 1) continue;
      if (!p.split[k].empty()) continue;  // split over another dimension (experts)
      p.split[k] = axes;
      p.why += str_cat(p.why.empty() ? "" : "; ", why);
    }
  }

  StrategyContext& s_;
  const Axes tp_;
  const std::vector<std::vector<int32_t>> users_;
  std::vector<std::vector<Spec>> specs_;
};

void annotate(StrategyContext& s) {
  const Axes tp = s.axes("tp");
  s.pins.activations = tp;
  s.pins.sequence = s.plan.sequence && !tp.empty();
  s.pins.keep_gathered = s.plan.keep_gathered;
  if (!tp.empty()) TensorParallel(s, tp).run();
}

std::vector<std::string> sequences(const Mesh& mesh, const Plan&) {
  if (!mesh.find("tp")) return {};
  return {"on", "off"};
}
std::vector<std::string> keeps(const Mesh& mesh, const Plan& plan) {
  if (!mesh.find("tp") || !plan.sequence) return {"off"};
  return {"off", "on"};
}

std::string avoid(const Mesh&, const PlannedCollective& c) {
  if (c.subject == Subject::kGradient || c.axes.find("tp") == c.axes.npos) return {};
  const bool gather = c.kind == Collective::kAllGather;
  if (gather && c.phase == Phase::kBackward)
    return "keep_gathered = true keeps gathered activations for backward; sequence = false uses all-reduces instead";
  if (gather || c.kind == Collective::kReduceScatter) return "sequence = false uses all-reduces instead";
  if (c.kind == Collective::kAllReduce) return "sequence = true uses reduce-scatters and all-gathers instead";
  return {};
}

// Tries sizes within a node.
std::vector<int> sizes(const MeshSearch& s) { return powers_of_2(s, std::min(s.node, 8)); }

constexpr std::string_view kDimensions[] = {"tp"};
constexpr OptionRow kOptions[] = {
    {.name = "sequence",
     .field = &Plan::sequence,
     .help = "split sequences where tp does not split features (sequence parallelism, Korthikanti et al. 2022)",
     .tried = sequences},
    {.name = "keep_gathered",
     .field = &Plan::keep_gathered,
     .help = "backward keeps gathered activations of forward: less communication, more memory",
     .flag = false,
     .tried = keeps},
};

}  // namespace

const Strategy tensor_parallel = {.name = "tensor_parallel",
                                  .dimensions = kDimensions,
                                  .options = kOptions,
                                  .annotate = annotate,
                                  .avoid = avoid,
                                  .sizes = sizes,
                                  .level = 0};

}  // namespace weft::dist
