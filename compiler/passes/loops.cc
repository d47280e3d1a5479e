#include "compiler/passes/loops.h"

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
  Rewriter r(g);
  for (int32_t id = 0; id < g.size(); ++id) {
    const Node& n = g.node(id);
    if (n.op != &loop_op) {
      r.copy(id);
      continue;
    }
    const Ref<Graph> joint = run_passes(n.attrs.get<Ref<Graph>>("body"), passes_of(PassStage::kLocal), options);
    Node fused = n;
    fused.inputs.clear();
    for (Value v : n.inputs) fused.inputs.push_back(r(v));
    fused.attrs = n.attrs.with("body", run_passes(joint, passes_of(PassStage::kFused), options));
    const int32_t now = r.graph().add(std::move(fused));
    for (size_t i = 0; i < n.outputs.size(); ++i) r.map({id, static_cast<int32_t>(i)}, {now, static_cast<int32_t>(i)});
  }
  return r.finish();
}

}  // namespace weft
