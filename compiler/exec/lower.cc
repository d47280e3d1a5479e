#include "compiler/exec/lower.h"

#include "compiler/kir/fused.h"
#include "framework/dispatch/capture.h"
#include "framework/ir/op_def.h"

namespace weft::internal {
namespace {

bool must_lower(const Node& n) {
  if (n.op->is(kUnfolds)) return true;
  return n.op != &kir::fused_op && n.op != &input_op && n.op != &cell_op && n.op != &captured_op && !n.op->kernel && !n.op->view;
}

}  // namespace

Ref<Graph> expand(const Graph& g, FunctionRef<bool(const Node&)> which) {
  Capture capture(Capture::kStep);
  NoGrad guard;
  Graph& to = capture.graph();
  to.captured = g.captured;
  to.cells = g.cells;
  to.inputs.resize(g.inputs.size());
  std::vector<std::vector<Tensor>> values(g.size());
  const char* saved = thread_state.scope;
  for (int32_t id = 0; id < g.size(); ++id) {
    const Node& n = g.node(id);
    std::vector<Tensor> in;
    for (Value v : n.inputs) in.push_back(values[v.node][v.index]);
    if (which(n)) {
      WEFT_BUG_IF(!n.op->decompose, "lower: ", n.op->name, " has no kernel, no view and no decomposition");
      LineScope line(n.line);
      const BackwardScope backward(n.backward);
      thread_state.scope = n.scope;
      try {
        values[id] = n.op->decompose(n.attrs, in);
      } catch (...) {
        thread_state.scope = saved;
        throw;
      }
      thread_state.scope = saved;
      continue;
    }
    Node copy = n;
    copy.inputs.clear();
    for (const Tensor& t : in) copy.inputs.push_back(capture.value_of(t));
    const int32_t now = to.add(std::move(copy));
    if (n.op == &input_op) to.inputs[n.attrs.i("index")] = {now, 0};
    for (size_t i = 0; i < n.outputs.size(); ++i) values[id].push_back(capture.wrap({now, static_cast<int32_t>(i)}));
  }
  for (const CellWrite& w : g.writes)
    to.writes.push_back({w.cell, capture.value_of(values[w.value.node][w.value.index])});
  std::vector<Tensor> out;
  for (Value v : g.outputs) out.push_back(values[v.node][v.index]);
  Ref<Graph> next = capture.finish(out);
  next->stage = g.stage;
  return next;
}

Ref<Graph> lower(const Graph& g) {
  auto current = make_ref<Graph>(g);
  for (;;) {
    bool any = false;
    for (int32_t id = 0; id < current->size(); ++id) any |= must_lower(current->node(id));
    if (!any) return current;
    current = expand(*current, [](const Node& n) { return must_lower(n); });
  }
}

}  // namespace weft::internal
