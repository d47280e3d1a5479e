#include "compiler/exec/untrained.h"

#include <algorithm>
#include <vector>

#include "framework/autodiff/grad.h"
#include "framework/ir/op_def.h"

namespace weft::internal {

std::string untrained_parameters(const Graph& g) {
  std::vector<bool> trained(g.cells.size()), differentiated = trained;
  std::vector<std::string> line(g.cells.size());  // of the first op that reads it, with a space before it
  const auto cell_of = [&](Value v) { return g.node(v).op == &cell_op ? g.node(v).attrs.i("index") : -1; };
  for (const CellWrite& w : g.writes) trained[static_cast<size_t>(w.cell)] = true;
  for (int32_t id = 0; id < g.size(); ++id) {
    const Node& n = g.node(id);
    for (Value v : n.inputs) {
      const int64_t c = cell_of(v);
      if (c < 0) continue;
      const auto i = static_cast<size_t>(c);
      if (n.op == &grad_op) {
        trained[i] = differentiated[i] = true;
      } else if (line[i].empty() && n.line.line) {
        line[i] = str_cat(" at ", n.line);
      }
    }
  }
  if (std::find(differentiated.begin(), differentiated.end(), true) == differentiated.end()) return "";
  constexpr int kShown = 8;
  std::string names;
  int count = 0;
  for (size_t i = 0; i < g.cells.size(); ++i) {
    const Cell& c = *g.cells[i];
    if (trained[i] || !c.is_parameter || !c.requires_grad) continue;
    if (++count <= kShown)
      names += str_cat(count > 1 ? ", " : "", c.name.empty() ? "one without a name" : str_cat("'", c.name, "'"), " ",
                       c.type, line[i]);
  }
  if (count == 0) return "";
  return str_cat("compile: the step reads ", count, " trainable parameter", count > 1 ? "s" : "",
                 " without taking a gradient or writing: ", names, count > kShown ? ", ..." : "",
                 "; register their module (register_module), or freeze() them");
}

}  // namespace weft::internal
