#include "compiler/passes/lower.h"

#include "compiler/passes/retrace.h"
#include "framework/dispatch/dispatch.h"
#include "framework/ir/op_def.h"

namespace weft::internal {

static bool must_lower(const Node& n) {
  if (n.op->is(kUnfolds)) return true;
  return !n.op->is(kRunsBody) && !is_leaf(n) && !n.op->kernel && !n.op->view;
}

Ref<Graph> expand(const Graph& g, FunctionRef<bool(const Node&)> which) {
  return retrace(g, [&](const Node& n, std::span<const Tensor> in) {
    if (!which(n)) return std::vector<Tensor>();
    WEFT_BUG_IF(!n.op->decompose, "lower: ", n.op->name, " has no kernel, no view and no decomposition");
    return decomposed(*n.op, n.attrs, in, n.outputs);
  });
}

Ref<Graph> lower(const Graph& g) {
  auto current = make_ref<Graph>(g);
  for (int round = 0;; ++round) {
    constexpr int kMostRounds = 16;  // a `decompose` that calls itself twice doubles the graph in each
    const Node* left = nullptr;
    for (int32_t id = 0; id < current->size() && !left; ++id)
      if (must_lower(current->node(id))) left = &current->node(id);
    if (!left) return current;
    WEFT_CHECK(round < kMostRounds, left->op->name, ": `decompose` calls the op itself; need other ops");
    current = expand(*current, [](const Node& n) { return must_lower(n); });
  }
}

}  // namespace weft::internal
