#include "compiler/passes/loops.h"

#include <functional>
#include <map>
#include <set>

#include "compiler/loop_ir/fused.h"
#include "compiler/passes/lower.h"
#include "compiler/passes/new_node.h"
#include "compiler/passes/pipeline.h"
#include "framework/dispatch/capture.h"
#include "framework/ir/rewrite.h"
#include "ops/composite/math/accumulate.h"
#include "ops/core/functions/loop.h"
#include "ops/core/indexing/view.h"
#include "ops/core/products/dot.h"
#include "ops/kernels/products/gemm.h"

namespace weft {
namespace {

bool has_loop(const Graph& g) {
  for (int32_t id = 0; id < g.size(); ++id)
    if (g.node(id).op == &loop_op) return true;
  return false;
}

// The joint passes before and after the pass with this name.
std::pair<std::span<const Pass>, std::span<const Pass>> joint_around(std::string_view name) {
  const std::span<const Pass> joint = passes_of(PassStage::kJoint);
  for (size_t i = 0; i < joint.size(); ++i)
    if (name == joint[i].name) return {joint.first(i), joint.subspan(i + 1)};
  WEFT_BUG_IF(true, "loops: no joint pass is named ", name);
}

PassOptions options_of(const PassContext& context) {
  return {.disable = context.disabled, .known = all_passes(), .facts = context.facts};
}

// The new result for each old result of a loop, or -1.
using KeptResults = std::vector<int32_t>;

// Removes stacked results that nothing reads: a joint graph often keeps some of them for gradients that turned out not
// to be needed. Merges results that are one value of the body, such as the gradients of a sum's operands.
Ref<Graph> with_fewer_results(const Ref<Graph>& body, int64_t carries, const std::function<bool(int32_t)>& read,
                              KeptResults& kept) {
  const auto now = make_ref<Graph>(*body);
  now->outputs.clear();
  std::map<Value, int32_t> stacked;
  for (int32_t o = 0; o < static_cast<int32_t>(body->outputs.size()); ++o) {
    const auto next = static_cast<int32_t>(now->outputs.size());
    const Value v = body->outputs[o];
    kept.push_back(o < carries ? next : !read(o) ? -1 : stacked.try_emplace(v, next).first->second);
    if (kept.back() == next) now->outputs.push_back(v);
  }
  return now;
}

// If a matrix of a product is the same in each iteration of a loop, the product gets it in gemm's packed form, so that
// it is packed once: [n / columns, k, columns]. These matrices become operands of the loop.
class Panels {
 public:
  Panels(Rewriter& outer, const Node& loop)
      : outer_(outer), loop_(loop), fixed_(loop.attrs.i("carries") + loop.attrs.i("stacked")) {}

  Ref<Graph> arrange(const Ref<Graph>& joint) {
    const Graph& body = *joint;
    Rewriter r(body);
    std::vector<Value> inputs;
    for (int32_t id = 0; id < body.size(); ++id) {
      const Node& n = body.node(id);
      PanelMatrix m;
      if (!find(body, n, &m)) {
        r.copy(id);
        continue;
      }
      const auto [at, fresh] = packed_.try_emplace({m.operand, m.transposed});
      if (fresh) {
        const Value packed = packed_outside(m, n);
        Node input;
        input.op = &input_op;
        input.attrs = {{"index", static_cast<int64_t>(body.inputs.size() + inputs.size())}};
        input.outputs.push_back(outer_.graph().type(packed));
        inputs.push_back({r.graph().add(std::move(input)), 0});
        operands.push_back(packed);
        at->second = inputs.back();
      }
      const Value y = emit(r, dot_op, {r(n.inputs[0]), at->second}, n.attrs.with("b_contract", Shape{1}), n);
      r.map({id, 0}, emit(r, reshape_op, {y}, {{"shape", n.outputs[0].shape}}, n));
    }
    if (inputs.empty()) return joint;
    const Ref<Graph> now = r.finish();
    now->inputs.insert(now->inputs.end(), inputs.begin(), inputs.end());
    return now;
  }

  std::vector<Value> operands;  // operands that are added after the loop's own

 private:
  struct PanelMatrix {
    int64_t operand = 0, k = 0, columns = 0, panels = 0;
    bool transposed = false;  // the operand is [n, k], otherwise [k, n]
  };

  bool find(const Graph& body, const Node& n, PanelMatrix* m) const {
    if (n.op != &dot_op || !n.attrs.ints("a_batch").empty() || n.attrs.ints("b_contract").size() != 1) return false;
    const Node* source = &body.node(n.inputs[1]);
    m->transposed = n.attrs.ints("b_contract")[0] == 1;
    if (source->op == &permute_op && source->attrs.ints("dims") == Shape{1, 0}) {
      source = &body.node(source->inputs[0]);
      m->transposed = !m->transposed;
    }
    if (!is_argument(*source) || source->attrs.i("index") < fixed_) return false;
    m->operand = source->attrs.i("index");
    const TensorType& type = source->outputs[0];
    if (type.shape.size() != 2 || !(n.outputs[0].dtype == type.dtype)) return false;
    m->columns = kernels::gemm_panel(type.dtype);
    m->k = type.shape[m->transposed ? 1 : 0];
    const int64_t columns = type.shape[m->transposed ? 0 : 1];
    if (m->columns == 0 || columns % m->columns != 0 || columns == m->columns || m->k < 2) return false;
    m->panels = columns / m->columns;
    // A product of a few rows packs no operand.
    return n.outputs[0].shape.numel() / columns > kernels::gemm_few_rows(type.dtype, m->k);
  }

  Value packed_outside(const PanelMatrix& m, const Node& from) {
    const Value w = outer_(loop_.inputs[static_cast<size_t>(m.operand)]);
    const Shape split = m.transposed ? Shape{m.panels, m.columns, m.k} : Shape{m.k, m.panels, m.columns};
    const Value parts = emit(outer_, reshape_op, {w}, {{"shape", split}}, from);
    const Shape order = m.transposed ? Shape{0, 2, 1} : Shape{1, 0, 2};
    return emit(outer_, loop_ir::copy_op, {emit(outer_, permute_op, {parts}, {{"dims", order}}, from)}, {}, from);
  }

  static Value emit(Rewriter& r, const OpDef& op, std::initializer_list<Value> in, Attrs attrs, const Node& from) {
    return add_node(r.graph(), op, {in.begin(), in.size()}, std::move(attrs), from);
  }

  Rewriter& outer_;
  const Node& loop_;
  const int64_t fixed_;
  std::map<std::pair<int64_t, bool>, Value> packed_;  // operand and whether it is transposed -> input of the body
};

}  // namespace

bool is_sum_over_parts(const Node& n) {
  return n.op == &loop_op && n.attrs.b("sums", false) && n.attrs.i("carries") == static_cast<int64_t>(n.outputs.size());
}

Ref<Graph> parts(const Graph& g, PassContext& context) {
  bool any = false;
  for (int32_t id = 0; id < g.size(); ++id) any |= g.node(id).op == &accumulate_op;
  if (!any) return {};
  return recapture(g, [&](const Node& n, std::span<const Tensor> in) -> std::optional<std::vector<Tensor>> {
    if (n.op != &accumulate_op) return {};
    const internal::OriginScope at(n, n.backward);
    const Ref<Graph> body =
        run_passes(n.attrs.get<Ref<Graph>>("body"), joint_around("expand_grad").first, options_of(context));
    return accumulate_op.decompose(n.attrs.with("body", body), in);
  });
}

Ref<Graph> unroll(const Graph& g, PassContext& context) {
  if (context.facts.loops && !context.facts.exact_sums) return {};
  const auto unrolled = [&](const Node& n) {
    return n.op == &loop_op && !(context.facts.stages && is_sum_over_parts(n));
  };
  const auto any = [&](const Graph& at) {
    for (int32_t id = 0; id < at.size(); ++id)
      if (unrolled(at.node(id))) return true;
    return false;
  };
  Ref<Graph> now;
  for (const Graph* at = &g; any(*at); at = now.get()) now = internal::expand(*at, unrolled);
  const Graph& last = now ? *now : g;
  if (!has_loop(last)) return now;
  return changed_copy(last, [&](Node& n) {
    if (n.op != &loop_op) return;
    const Ref<Graph> body = n.attrs.get<Ref<Graph>>("body");
    n.attrs = n.attrs.with("body", run_passes(body, joint_around("parts").second, options_of(context)));
  });
}

Ref<Graph> loop_bodies(const Graph& g, PassContext& context) {
  if (!has_loop(g)) return {};
  const PassOptions options = options_of(context);
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
    const int64_t carries = n.attrs.i("carries");
    KeptResults read, kept;
    const auto is_read = [&](int32_t o) { return used.contains({id, o}); };
    const Ref<Graph> needed = with_fewer_results(n.attrs.get<Ref<Graph>>("body"), carries, is_read, read);
    const Ref<Graph> passed = run_passes(needed, joint_around("unroll").second, options);
    const Ref<Graph> joint = with_fewer_results(
        passed, carries, [](int32_t) { return true; }, kept);
    Panels panels(r, n);
    // A second copy of the weights costs memory, and one iteration packs them once anyway.
    const bool packs = n.attrs.i("length") > 1 && !context.facts.low_memory;
    const Ref<Graph> arranged = packs ? panels.arrange(joint) : joint;
    Node fused = n;
    fused.inputs.clear();
    for (Value v : n.inputs) fused.inputs.push_back(r(v));
    for (Value v : panels.operands) fused.inputs.push_back(v);
    fused.attrs = n.attrs.with("body", run_passes(arranged, passes_of(PassStage::kFused), options));
    fused.outputs.resize(joint->outputs.size());
    for (size_t o = 0; o < read.size(); ++o)
      if (read[o] >= 0) fused.outputs[kept[read[o]]] = n.outputs[o];
    const int32_t now = r.graph().add(std::move(fused));
    for (int32_t o = 0; o < static_cast<int32_t>(read.size()); ++o)
      if (read[o] >= 0) r.map({id, o}, {now, kept[read[o]]});
  }
  return r.finish();
}

}  // namespace weft
