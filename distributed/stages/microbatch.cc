#include "distributed/stages/microbatch.h"

#include "compiler/passes/dce.h"
#include "compiler/passes/loops.h"
#include "compiler/passes/new_node.h"
#include "framework/ir/rewrite.h"
#include "ops/core/functions/loop.h"
#include "ops/core/pointwise.h"
#include "ops/core/record_parts.h"

namespace weft::dist {
namespace {

Cost no_cost(const Attrs&, std::span<const TensorType>, std::span<const TensorType>) { return {}; }

// The only loop over the parts of a batch.
int32_t find_loop(const Graph& joint) {
  int32_t loop = -1;
  for (int32_t id = 0; id < joint.size(); ++id) {
    const Node& n = joint.node(id);
    WEFT_CHECK(n.op != &loop_op || !n.attrs.b("sums", false) || is_sum_over_parts(n),
               "pp: the gradients of accumulate()", at_line(n),
               " are taken outside of its function; need grad() inside it, and detached results");
    if (!is_sum_over_parts(n)) continue;
    WEFT_CHECK(loop < 0, "pp: the step calls accumulate()", at_line(joint.node(loop)), " and", at_line(joint.node(id)),
               "; need one call, whose function becomes the stages");
    loop = id;
  }
  WEFT_CHECK(loop >= 0,
             "pp: the step has no accumulate() of 2 parts or more with detached results; need "
             "accumulate(microbatches, batch, fn) with grad() and detach() inside fn");
  return loop;
}

// Whether each node follows from arguments and constants alone.
std::vector<bool> follows_from_arguments(const Graph& g) {
  std::vector<bool> all(g.size());
  for (int32_t id = 0; id < g.size(); ++id) {
    const Node& n = g.node(id);
    all[id] = !is_cell(n) && !n.op->is(kRandom);
    for (Value v : n.inputs) all[id] = all[id] && all[v.node];
  }
  return all;
}

// Puts the body of a loop into a graph.
class Inliner {
 public:
  Inliner(const Node& loop, Graph& to)
      : body_(*loop.attrs.get<Ref<Graph>>("body")), carries_(loop.outputs.size()), to_(to), now_(body_, to) {}

  /// `slices` and `shared`: the operands of the body after the running sums.
  void copy_body(std::span<const Value> slices, std::span<const Value> shared) {
    for (size_t i = carries_; i < body_.inputs.size(); ++i)
      now_.map(body_.inputs[i],
               i < carries_ + slices.size() ? slices[i - carries_] : shared[i - carries_ - slices.size()]);
    std::vector<bool> adds(body_.size());
    for (Value v : body_.outputs) adds[v.node] = true;
    for (int32_t id = 0; id < body_.size(); ++id)
      if (!adds[id] && !is_argument(body_.node(id))) now_.copy(id);
  }

  /// Result `o` of the loop; `before`: the initial value of the sum.
  Value sum(size_t o, Value before) {
    const Value so_far = body_.inputs[o], out = body_.outputs[o];
    if (out == so_far) return before;  // adds zero
    const Node& n = body_.node(out);
    const bool add = n.op == &pointwise_op("add"), sub = n.op == &pointwise_op("sub");
    const size_t at = add && n.inputs[1] == so_far ? 1 : 0;
    WEFT_BUG_IF((!add && !sub) || n.inputs[at] != so_far || n.inputs[1 - at] == so_far,
                "stages: the body of the loop does not add to sum ", o);
    Value part = now_(n.inputs[1 - at]);
    // simplify writes the sum with a negated value as a difference, which has the same bits.
    // The sum of gradients is a gradient.
    Value summed = part;
    while (to_.node(summed).op == &cast_op) summed = to_.node(summed).inputs[0];
    const bool backward = to_.node(summed).backward;
    if (sub) part = emit(pointwise_op("neg"), part, {}, n, backward);
    return emit(microbatch_sum_op, part, {{"index", static_cast<int64_t>(o)}}, n, backward);
  }

 private:
  Value emit(const OpDef& op, Value in, Attrs attrs, const Node& from, bool backward) {
    Node n = new_node(to_, op, {&in, 1}, std::move(attrs), from);
    n.backward = backward;
    return {to_.add(std::move(n)), 0};
  }

  const Graph& body_;
  const size_t carries_;
  Graph& to_;
  NodeCopier now_;
};

}  // namespace

const OpDef microbatch_sum_op = {
    .name = "microbatch_sum",
    .doc = "The sum over all microbatches of the operand; {index}: of the results of accumulate().",
    .traits = kStructural,
    .infer = internal::infer_same,
    .dims = internal::dims_pointwise,
    .cost = no_cost,
    .linear = 1,
};

Microbatch one_microbatch(const Graph& joint) {
  const int32_t loop = find_loop(joint);
  const Node& n = joint.node(loop);
  const size_t carries = n.outputs.size(), stacked = static_cast<size_t>(n.attrs.i("stacked"));
  const std::vector<bool> from_arguments = follows_from_arguments(joint);
  Microbatch m;
  m.graph = make_ref<Graph>();
  m.count = n.attrs.i("length");
  m.arguments = joint.inputs.size();
  Graph& g = *m.graph;
  g.cells = joint.cells;
  g.captured = joint.captured;
  g.stage = joint.stage;
  NodeCopier now(joint, g);
  for (Value v : joint.inputs) now.map(v, g.add_input(joint.type(v)));
  std::vector<Value> slices, shared;
  for (size_t k = 0; k < stacked; ++k) {
    m.sources.push_back(n.inputs[carries + k]);
    WEFT_CHECK(from_arguments[m.sources[k].node], "pp: the batch of accumulate()", at_line(n),
               " follows from cells or random numbers; need values that follow from arguments of the step alone");
    TensorType slice = joint.type(m.sources[k]);
    slice.shape.erase(0);
    slices.push_back(g.add_input(slice));
  }
  for (int32_t id = 0; id < joint.size(); ++id) {
    if (is_argument(joint.node(id))) continue;
    if (id != loop) {
      now.copy(id);
      continue;
    }
    for (size_t i = carries + stacked; i < n.inputs.size(); ++i) shared.push_back(now(n.inputs[i]));
    Inliner body(n, g);
    body.copy_body(slices, shared);
    for (size_t o = 0; o < carries; ++o) now.map({id, static_cast<int32_t>(o)}, body.sum(o, now(n.inputs[o])));
  }
  for (Value v : joint.outputs) g.outputs.push_back(now(v));
  for (const CellWrite& w : joint.writes) g.writes.push_back({w.cell, now(w.value)});
  // Removes values that only the loop read: the whole batch, and zeros.
  if (const Ref<Graph> used = dce(g)) m.graph = used;
  return m;
}

}  // namespace weft::dist
