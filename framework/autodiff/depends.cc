#include "framework/autodiff/depends.h"

#include <unordered_set>

#include "framework/autodiff/grad.h"
#include "framework/dispatch/tape.h"

namespace weft::internal {

std::vector<bool> reached_by_derivative(const Graph& g, Value loss) {
  std::vector<bool> reached(static_cast<size_t>(loss.node) + 1, false);
  reached.back() = true;
  for (int32_t id = loss.node; id >= 0; --id) {
    const Node& n = g.node(id);
    if (!reached[static_cast<size_t>(id)] || n.no_grad || (!n.op->vjp && !n.op->is(kReadsTape))) continue;
    for (Value v : n.inputs)
      if (is_floating(g.type(v).dtype)) reached[static_cast<size_t>(v.node)] = true;
  }
  return reached;
}

bool depends_on(const Tensor& loss, const std::vector<Parameter>& parameters) {
  if (Capture* const capture = thread_state.capture) {
    if (capture->kind() != Capture::kStep) return true;
    const std::vector<bool> reached = reached_by_derivative(capture->graph(), capture->value_of(loss));
    for (const Parameter& p : parameters)
      for (const Tensor& t : capture->recorded_reads(&p.cell()))
        if (const auto at = static_cast<size_t>(capture->value_of(t).node); at < reached.size() && reached[at])
          return true;
    return false;
  }
  std::unordered_set<uint64_t> variables;
  for (const Parameter& p : parameters)
    if (const RefCounted* leaf = p.cell().leaf.get()) variables.insert(static_cast<const TapeNode*>(leaf)->variable);
  // The loop ends at the first parameter. It follows the last operand first, which finds a parameter soon.
  std::unordered_set<const TapeNode*> seen{tape_node(loss)};
  std::vector<const TapeNode*> stack{tape_node(loss)};
  while (!stack.empty()) {
    const TapeNode* n = stack.back();
    stack.pop_back();
    if (!n->op && variables.contains(n->variable)) return true;
    for (const Tensor& t : n->in)
      if (const TapeNode* up = tape_node(t); up && seen.insert(up).second) stack.push_back(up);
  }
  return false;
}

void mark_trained(const Parameter& p) {
  Cell& c = p.cell();
  if (!c.leaf) c.leaf = make_leaf();
  static_cast<TapeNode*>(c.leaf.get())->trained = true;
}

bool is_trained(const Cell& c) { return c.leaf && static_cast<const TapeNode*>(c.leaf.get())->trained; }

}  // namespace weft::internal
