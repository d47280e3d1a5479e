// Expert parallelism (ep): the weights of experts are split over their first dim. Tokens are sent to the ranks of their
// experts.
#include <algorithm>

#include "distributed/strategies/strategy.h"
#include "ops/core/core.h"
#include "ops/core/indexing/moe.h"

namespace weft::dist {
namespace {

void annotate(StrategyContext& s) {
  const Axes ep = s.axes("ep");
  bool any = false;
  for (int32_t id = 0; id < s.graph.size(); ++id) {
    const Node& n = s.graph.node(id);
    if (n.backward || !n.op->is(kContraction)) continue;
    for (size_t i = 0; i < 2; ++i) {
      const int32_t cell = parameter_behind(s.graph, n.inputs[i]);
      ParameterPin* p = cell < 0 ? nullptr : s.find(cell);
      if (!p || p->shape.size() != 3) continue;
      const bool grouped = n.op == &grouped_dot_op && i == 1;
      const bool batched = n.op == &dot_op && n.attrs.ints(i == 0 ? "a_batch" : "b_batch").size() == 1;
      if (!grouped && !batched) continue;
      any = true;
      p->expert = grouped;
      if (ep.empty() || p->split_by_rule || p->uses(ep)) continue;
      WEFT_CHECK(p->shape[0] >= s.mesh.parts(ep), "mesh ", s.mesh.to_string(), ": ", p->shape[0], " experts ('",
                 p->name, "') over ep", s.mesh.parts(ep), "; need ep of at most ", p->shape[0]);
      p->split[0] = ep;
      p->why = "ep: experts";
    }
  }
  if (!any && !ep.empty()) s.notes.push_back("ep: the step has no experts; ep is one more data dimension");
  for (const ParameterPin& p : s.parameters)
    if (p.uses(ep)) s.pins.experts = ep;
  s.pins.expert_room = s.plan.expert_room;
}

// Tries sizes up to the number of experts.
std::vector<int> sizes(const MeshSearch& s) {
  int64_t experts = 0;
  for (int32_t id = 0; id < s.graph.size(); ++id)
    if (const Node& n = s.graph.node(id); n.op == &expert_order_op)
      experts = std::max(experts, n.attrs.i("num_experts"));
  return powers_of_2(s, experts);
}

constexpr std::string_view kDimensions[] = {"ep"};
constexpr OptionRow kOptions[] = {
    {.name = "expert_room",
     .field = &Plan::expert_room,
     .need = "a number of average shares, or 0",
     .help =
         "capacity of a rank for rows of its experts, in average shares; more rows are an error. 0: room for all rows",
     .flag = false},
};

}  // namespace

const Strategy expert_parallel = {.name = "expert_parallel",
                                  .dimensions = kDimensions,
                                  .options = kOptions,
                                  .annotate = annotate,
                                  .sizes = sizes,
                                  .level = 2};

}  // namespace weft::dist
