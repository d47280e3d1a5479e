#include "compiler/passes/loops.h"

#include <set>

#include "compiler/passes/lower.h"
#include "compiler/passes/pipeline.h"
#include "framework/ir/rewrite.h"
#include "ops/core/loop.h"

namespace weft {
namespace {

bool has_loop(const Graph& g) {
  for (int32_t id = 0; id < g.size(); ++id)
    if (g.node(id).op == &loop_op) return true;
  return false;
}

// Removes the stacked results that nothing reads. A joint graph often keeps some of them for gradients that turned out
// not to be needed.
Node without_unused(const Node& loop, int32_t id, const std::set<Value>& used, std::vector<int32_t>& kept) {
  const Graph& was = *loop.attrs.get<Ref<Graph>>("body");
  const auto body = make_ref<Graph>(was);
  Node n = loop;
  n.outputs.clear();
  body->outputs.clear();
  for (int32_t o = 0; o < static_cast<int32_t>(loop.outputs.size()); ++o) {
    if (o >= loop.attrs.i("carries") && !used.contains({id, o})) continue;
    kept.push_back(o);
    n.outputs.push_back(loop.outputs[o]);
    body->outputs.push_back(was.outputs[o]);
  }
  n.attrs = loop.attrs.with("body", body);
  return n;
}

}  // namespace

Ref<Graph> unroll(const Graph& g, PassContext& context) {
  if (context.facts.loops && !context.facts.exact_sums) return {};
  Ref<Graph> now;
  for (const Graph* at = &g; has_loop(*at); at = now.get())
    now = internal::expand(*at, [](const Node& n) { return n.op == &loop_op; });
  return now;
}

Ref<Graph> loop_bodies(const Graph& g, PassContext& context) {
  if (!has_loop(g)) return {};
  PassOptions options{.disable = context.disabled, .known = all_passes(), .facts = context.facts};
  std::set<Value> used(g.outputs.begin(), g.outputs.end());
  for (const CellWrite& w : g.writes) used.insert(w.value);
  for (int32_t id = 0; id < g.size(); ++id) used.insert(g.node(id).inputs.begin(), g.node(id).inputs.end());
  Rewriter r(g);
  for (int32_t id = 0; id < g.size(); ++id) {
    const Node& n = g.node(id);
    if (n.op != &loop_op) {
      r.copy(id);
      continue;
    }
    std::vector<int32_t> kept;
    Node fused = without_unused(n, id, used, kept);
    const Ref<Graph> joint = run_passes(fused.attrs.get<Ref<Graph>>("body"), passes_of(PassStage::kLocal), options);
    fused.inputs.clear();
    for (Value v : n.inputs) fused.inputs.push_back(r(v));
    fused.attrs = n.attrs.with("body", run_passes(joint, passes_of(PassStage::kFused), options));
    const int32_t now = r.graph().add(std::move(fused));
    for (size_t i = 0; i < kept.size(); ++i) r.map({id, kept[i]}, {now, static_cast<int32_t>(i)});
  }
  return r.finish();
}

}  // namespace weft
