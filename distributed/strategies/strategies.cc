#include "distributed/strategies/strategies.h"

#include <algorithm>
#include <limits>

#include "ops/core/core.h"

namespace weft::dist {
namespace {

// The registry, in the order in which strategies annotate.
constexpr const Strategy* kStrategies[] = {
    &data_parallel,      // first: it owns dim 0 of the arguments
    &expert_parallel,    // before tensor_parallel, which leaves dims that are split already
    &tensor_parallel,    //
    &context_parallel,   //
    &pipeline_parallel,  // places nothing
    &sharded_state,      // it shards over axes that a parameter does not use yet
    &replica,            // places nothing; data_parallel splits the batch over it
};

void check_mesh(const Mesh& mesh, const std::vector<const Strategy*>& all) {
  std::vector<std::string_view> known;
  for (const Strategy* s : all) known.insert(known.end(), s->dimensions.begin(), s->dimensions.end());
  for (const Mesh::Dim& d : mesh.dims()) {
    if (d.size == 1) continue;
    WEFT_CHECK(std::ranges::count(known, d.name), "mesh ", mesh.to_string(), ": no strategy for dimension '", d.name,
               "'; need ", one_of(known));
  }
}

CellPin cell_pin(const Mesh& mesh, const ParameterPin& p) {
  Spec use = Spec::replicated(p.shape);
  for (int d = 0; d < p.shape.size(); ++d)
    if (const Axes& axes = p.split[d]; !axes.empty()) use.dims[d] = one_segment(p.shape[d], axes);
  Spec shards = use;
  std::string why = p.why;
  if (p.sharded_dim >= 0) {
    Axes all = p.split[p.sharded_dim];
    for (int8_t a : p.sharded) all.push_back(a);
    shards.dims[p.sharded_dim] = one_segment(p.shape[p.sharded_dim], all);
    why += str_cat(why.empty() ? "" : "; ", p.why_sharded, ": dim ", p.sharded_dim, " over ", mesh.name(p.sharded));
  }
  return {.rest = p.sharded_at_rest ? shards : use,
          .use = use,
          .update = shards,
          .gather_again = p.gather_again,
          .reduce_each = p.reduce_each,
          .why = why};
}

}  // namespace

bool ParameterPin::uses(const Axes& axes) const {
  for (const Axes& own : split)
    for (int8_t a : own)
      if (axes.contains(a)) return true;
  return false;
}

ParameterPin* StrategyContext::find(int32_t cell) {
  for (ParameterPin& p : parameters)
    if (p.cell == cell) return &p;
  return nullptr;
}

Axes StrategyContext::axes(std::string_view name) const {
  const Mesh::Dim* d = mesh.find(name);
  return d ? d->axes : Axes{};
}

int32_t parameter_behind(const Graph& g, Value v) {
  for (;;) {
    const Node& n = g.node(v);
    if (is_cell(n)) return static_cast<int32_t>(cell_index(n));
    if (n.inputs.size() != 1 || (!is_spread(n) && !n.op->is(kPointwise))) return -1;
    v = n.inputs[0];
  }
}

std::vector<int> powers_of_2(const MeshSearch& search, int64_t most) {
  std::vector<int> all{1};
  for (int n = 2; n <= most && search.world % (search.inner * n) == 0; n *= 2) all.push_back(n);
  return all;
}

std::string nearest_multiples(const char* what, int64_t have, int64_t n) {
  if (have < n) return str_cat("the least that does is ", n);
  const int64_t below = have / n * n;
  if (below > std::numeric_limits<int64_t>::max() - n) return str_cat("the nearest that does is ", below);
  return str_cat("the nearest ", what, " that do are ", below, " and ", below + n);
}

std::vector<const Strategy*> strategies_of(const Plan& plan) {
  std::vector<const Strategy*> all(std::begin(kStrategies), std::end(kStrategies));
  for (size_t i = 0; i < plan.strategies.size(); ++i) {
    const Strategy* s = plan.strategies[i];
    WEFT_CHECK(s, "plan: strategies[", i, "] is null; need the address of a Strategy");
    WEFT_CHECK(s->annotate, "plan: strategies[", i, "], '", s->name, "', has no function annotate; need one");
  }
  all.insert(all.end(), plan.strategies.begin(), plan.strategies.end());
  return all;
}

std::vector<const OptionRow*> options_of(const Plan& plan) {
  std::vector<const OptionRow*> rows;
  const std::vector<const Strategy*> all = strategies_of(plan);
  for (size_t i = all.size(); i-- > 0;)
    for (const OptionRow& row : all[i]->options) rows.push_back(&row);
  return rows;
}

Plan settled(const Mesh& mesh, Plan plan) {
  for (const Strategy* s : strategies_of(plan))
    if (s->settle) s->settle(mesh, plan);
  return plan;
}

std::string options_text(const Mesh& mesh, const Plan& plan) {
  auto serves = [&](const Strategy* s) {
    return s->dimensions.empty() ||
           std::ranges::any_of(s->dimensions, [&](std::string_view d) { return mesh.find(d) != nullptr; });
  };
  std::string text;
  const std::vector<const Strategy*> all = strategies_of(plan);
  for (size_t i = all.size(); i-- > 0;)
    for (const OptionRow& row : all[i]->options)
      if (row.tried && serves(all[i])) text += str_cat(text.empty() ? "" : ", ", row.name, " ", text_of(row, plan));
  return text;
}

void check_options(const Plan& plan) {
  const std::vector<const OptionRow*> rows = options_of(plan);
  for (const OptionRow* row : rows) {
    const std::string text = text_of(*row, plan);
    const char* quote = row->allowed.empty() ? "" : "'";
    WEFT_CHECK(is_valid(*row, plan), "plan: ", row->name, " is ", quote, text, quote, "; need ", need_of(*row));
  }
  const auto is_text = [](const OptionRow* row) { return std::holds_alternative<std::monostate>(row->field); };
  std::vector<std::string_view> names;
  for (const OptionRow* row : rows)
    if (is_text(row)) names.push_back(row->name);
  for (const auto& [name, value] : plan.more) {
    const auto row = std::ranges::find(rows, name, &OptionRow::name);
    WEFT_CHECK(row == rows.end() || is_text(*row), "plan: more has '", name, "'; need it as the member Plan::", name);
    WEFT_CHECK(row != rows.end(), "plan: more has '", name, "', which is no option of a strategy of this plan; need ",
               names.empty() ? "none: the strategies have no such options" : one_of(names));
    WEFT_CHECK(std::ranges::count(plan.more, name, [](const auto& own) { return own.first; }) == 1, "plan: more has '",
               name, "' twice");
  }
}

void check_arguments(const Mesh& mesh, const Plan& plan, std::span<const TensorType> arguments) {
  const std::vector<const Strategy*> all = strategies_of(plan);
  check_mesh(mesh, all);
  check_options(plan);
  for (const Strategy* s : all)
    if (s->check) s->check(mesh, plan, arguments);
}

Pins make_pins(const Mesh& mesh, const Graph& joint, const Plan& plan, std::vector<std::string>* notes) {
  std::vector<TensorType> arguments;
  for (Value v : joint.inputs) arguments.push_back(joint.type(v));
  check_arguments(mesh, plan, arguments);
  StrategyContext s{mesh, joint, plan};
  for (Value v : joint.inputs) s.pins.inputs.push_back(Spec::replicated(joint.type(v).shape));
  s.pins.cells.resize(joint.cells.size());
  for (size_t c = 0; c < joint.cells.size(); ++c) {
    const Cell& cell = *joint.cells[c];
    if (!cell.is_parameter) continue;
    s.parameters.push_back({static_cast<int32_t>(c), cell.name, cell.type.shape,
                            std::vector<Axes>(static_cast<size_t>(cell.type.shape.size()))});
  }
  pin_rules(s);
  for (const Strategy* strategy : strategies_of(plan)) strategy->annotate(s);
  for (const ParameterPin& p : s.parameters) s.pins.cells[p.cell] = cell_pin(mesh, p);
  int64_t uneven = 0;
  std::string first;
  for (const ParameterPin& p : s.parameters) {
    const Spec& update = s.pins.cells[p.cell]->update;
    if (even(mesh, update)) continue;
    if (++uneven == 1) first = str_cat("'", p.name, "' as ", to_string(mesh, update));
  }
  if (uneven)
    s.notes.push_back(str_cat(uneven, uneven == 1 ? " parameter is" : " parameters are", " split unevenly: ", first,
                              uneven > 1 ? ", ..." : "", "; ranks have shards of different sizes"));
  if (notes) *notes = std::move(s.notes);
  return std::move(s.pins);
}

}  // namespace weft::dist
