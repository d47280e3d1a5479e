#include "compiler/exec/untrained.h"

#include <algorithm>
#include <vector>

#include "framework/autodiff/depends.h"
#include "framework/autodiff/grad.h"
#include "framework/ir/op_def.h"

namespace weft::internal {

std::string untrained_parameters(const Graph& g) {
  std::vector<bool> trained(g.cells.size()), used = trained;  // used: by a loss of which a gradient is taken
  std::vector<std::string> place(g.cells.size());  // " at model.cc:31, in head": of the first op that reads the cell
  const auto cell_of = [&](Value v) { return cell_index(g.node(v)); };
  for (const CellWrite& w : g.writes) trained[static_cast<size_t>(w.cell)] = true;
  for (int32_t id = 0; id < g.size(); ++id) {
    const Node& n = g.node(id);
    // A gradient for other values, such as an input, trains nothing.
    if (n.op == &grad_op &&
        std::any_of(n.inputs.begin() + 1, n.inputs.end(), [&](Value v) { return cell_of(v) >= 0; })) {
      const std::vector<bool> reached = reached_by_derivative(g, n.inputs[0]);
      for (size_t k = 0; k < reached.size(); ++k)
        if (const int64_t c = cell_of({static_cast<int32_t>(k), 0}); c >= 0 && reached[k])
          used[static_cast<size_t>(c)] = true;
    }
    for (Value v : n.inputs) {
      const int64_t c = cell_of(v);
      if (c < 0) continue;
      const auto i = static_cast<size_t>(c);
      if (n.op == &grad_op) {
        trained[i] = true;
      } else if (place[i].empty() && n.line.line && !n.no_grad) {
        place[i] = origin_text(n.line, n.scope).substr(1);
      }
    }
  }
  constexpr int kShown = 8;
  std::string names;
  int count = 0;
  for (size_t i = 0; i < g.cells.size(); ++i) {
    const Cell& c = *g.cells[i];
    if (trained[i] || is_trained(c) || !used[i] || !c.is_parameter || !c.requires_grad) continue;
    if (++count <= kShown)
      names += str_cat(count > 1 ? ", " : "", c.name.empty() ? "one without a name" : str_cat("'", c.name, "'"), " ",
                       c.type, place[i]);
  }
  if (count == 0) return "";
  return str_cat("compile: the loss of the step depends on ", count, " trainable parameter", count > 1 ? "s" : "",
                 " of which it takes no gradient: ", names, count > kShown ? ", ..." : "",
                 "; register their module (register_module), make the optimiser after replacing a layer, or freeze() "
                 "them");
}

}  // namespace weft::internal
